"""Tuning of models: the tuning loop, tuning jobs, and the driver of tuning runs."""
