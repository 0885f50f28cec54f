from __future__ import annotations

import os
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.tvm


def test_programs_hold_machine_code_of_a_gpu(built_by: Callable[[dict[str, str]], list[str]]) -> None:
    assert built_by(dict(os.environ))[:-1] == ["62 190"] * 2  # x86-64, CUDA
