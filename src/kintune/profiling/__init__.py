"""Where the time of a compiled network goes: its kernels, in the terms of the user's graph."""
