from __future__ import annotations

import subprocess
import sys

_WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
from kintune_runtime.dtypes import numpy_dtype
print(*map(numpy_dtype, ("bfloat16", "float8_e4m3fn", "int64", "bool")))
"""


def test_without_ml_dtypes_narrow_floats_are_their_bits() -> None:
    said = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["uint16", "uint8", "int64", "bool"]
