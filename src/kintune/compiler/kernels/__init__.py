"""Kernels of our own: one table of instructions, one micro-kernel on it, and what stands around."""
