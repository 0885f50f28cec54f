from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paper_gpu import build_paper_gpu

pytestmark = pytest.mark.tvm


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_programs_for_gpus_are_built_where_there_is_no_driver(
    tmp_path: Path, built_by: Callable[[dict[str, str]], list[str]]
) -> None:
    environment = {**os.environ, **build_paper_gpu(tmp_path)}
    (tmp_path / "lib" / "libcuda.so.1").unlink()
    *built, said = built_by(environment)
    assert built == ["62 62"] * 2  # x86-64, and within it what the compiler on paper makes
    assert said == ("0" if has_driver() else "100")  # no device, says what stands in for a driver
