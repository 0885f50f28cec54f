"""Types of elements by the names that models use."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["name_of", "numpy_dtype"]

_KINDS = {1: "float", 2: "bfloat", 3: "int", 4: "uint", 5: "bool"}
"""`kt_kind` -> the beginning of a name."""


def name_of(kind: int, bits: int) -> str:
    """The name of a `kt_kind` with so many bits, such as "float32"."""
    return "bool" if kind == 5 else f"{_KINDS[kind]}{bits}"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name such as "float32".

    `bfloat16` and the 8-bit floats come from `ml_dtypes`; where it is missing, they are their bits as uint16 and uint8.
    Strings are objects.
    """
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint8 if name.startswith("float8") else np.uint16)
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
