"""Graphs: a model lowered to subgraphs, and the executable built of the best program for each."""
