from __future__ import annotations

import sys

import numpy as np
import pytest

from kintune_runtime.dtypes import numpy_dtype


@pytest.mark.parametrize(("name", "found"), [("bfloat16", np.uint16), ("float8_e4m3fn", np.uint8), ("int64", np.int64)])
def test_without_ml_dtypes_narrow_floats_are_their_bits(
    monkeypatch: pytest.MonkeyPatch, name: str, found: type[np.generic]
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert numpy_dtype(name) == np.dtype(found)
