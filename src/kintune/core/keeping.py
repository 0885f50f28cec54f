"""Which tensors between kernels are kept in bf16, in a network that computes in bf16 in part."""

from __future__ import annotations

from enum import Enum

__all__ = ["Keeping"]


class Keeping(str, Enum):
    """Which tensors are kept in bf16.  `NONE` is the empty string, so that it is false."""

    NONE = ""
    EXACT = "exact"
    """Only tensors that all their readers round anyway: the results are the same to the bit."""

    ALL = "all"
    """All tensors that can be kept; this adds a rounding error."""
