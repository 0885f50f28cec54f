"""NVIDIA GPUs: machine code for them, with or without one at hand, and what their device workers need."""
