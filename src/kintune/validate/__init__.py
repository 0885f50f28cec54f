"""Validates tuned networks: compares their outputs with references, and their latency with baselines."""
