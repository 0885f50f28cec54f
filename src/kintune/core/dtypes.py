"""Types of elements by the names that the compiler uses; the code is in `kintune_runtime.dtypes`."""

from __future__ import annotations

from kintune_runtime.dtypes import numpy_dtype

__all__ = ["numpy_dtype"]
