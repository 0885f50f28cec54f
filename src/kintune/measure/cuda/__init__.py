"""NVIDIA GPUs: the measurement backend and the peak."""
