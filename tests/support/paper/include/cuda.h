// What kernels include; all that they need is in paper.h.
