"""How a feature row is laid out; free of TVM.

Traits come first, then what the compiler's extractor says of the program.  A candidate has one of the two parts, and
zeros in the other: traits where its sketch has them, since they rank better and cost next to nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kintune.search.traits.traits import TRAITS

__all__ = ["STORES", "WIDTH", "of_stores", "of_traits"]

STORES = 328
"""Features that the extractor pools from a program's stores."""

WIDTH = TRAITS + STORES
"""Length of a feature row."""


def of_traits(traits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows, shape (n, `WIDTH`), from traits of shape (n, `TRAITS`)."""
    return np.pad(traits, ((0, 0), (0, STORES)))


def of_stores(pooled: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows, shape (n, `WIDTH`), from pooled features of shape (n, `STORES`)."""
    return np.pad(pooled, ((0, 0), (TRAITS, 0)))
