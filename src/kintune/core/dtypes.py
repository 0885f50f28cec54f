"""Types of elements by the names that the compiler uses."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["numpy_dtype"]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name that the compiler uses; `bfloat16` and the 8-bit floats come from `ml_dtypes`."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
