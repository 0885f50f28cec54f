"""Types of elements by the names that the compiler uses; the runtime has the text."""

from __future__ import annotations

from kintune_runtime.dtypes import numpy_dtype

__all__ = ["numpy_dtype"]
