"""Compares results with references and with baselines, in numbers and in latency."""
