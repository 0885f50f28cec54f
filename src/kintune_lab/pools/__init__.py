"""Pools: measured candidates of every subgraph of a network, on which searches and models are compared at no cost."""
