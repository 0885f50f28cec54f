"""Determinants, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def test_determinants(compare: Any, make_case: Any) -> None:
    draw = np.random.default_rng(0)
    tensors = [draw.standard_normal((*batch, n, n), dtype=np.float32) for n in (1, 2, 3, 4) for batch in ((), (2, 3))]
    wanted = [np.asarray(np.linalg.det(tensor), np.float32) for tensor in tensors]
    compare([make_case("Det", tensor) for tensor in tensors], 22, expected=wanted)


def test_great_ones_are_refused(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="5x5"):
        compare([make_case("Det", np.eye(5, dtype=np.float32))], 22, expected=[])
