"""Facts about this machine, found once: CPU, GPU, cores, caches, locks on them, and the tool chain."""
