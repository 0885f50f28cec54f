"""Pad and OneHot against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def test_pads(compare: Any, make_case: Any) -> None:
    pads = np.array([0, 1, 2, 0, 1, 1], np.int64)
    cases = [make_case("Pad", X, pads, constant=[1], mode=mode) for mode in ("constant", "reflect", "edge", "wrap")]
    cases += [
        make_case("Pad", X, pads, np.float32(2.5), constant=[1, 2]),
        make_case("Pad", X, np.array([2, 2], np.int64), None, np.array([-1], np.int64), constant=[1, 3], mode="wrap"),
        make_case("Pad", X, np.array([0, -1, 1, 0, 1, -2], np.int64), constant=[1]),
        make_case("Pad", X.astype(np.int64), pads, np.int64(-7), constant=[1, 2]),
    ]
    compare(cases, 19)


def test_one_hot(compare: Any, make_case: Any) -> None:
    indices = np.array([[0, 2, -1], [4, -5, 7]], np.int64)
    depth = np.array(5, np.int64)
    values = np.array([0.5, 2], np.float32)
    cases = [make_case("OneHot", indices, depth, values, constant=[1], axis=axis) for axis in (-1, 0, 1)]
    cases.append(make_case("OneHot", indices, depth, values.astype(np.int64), constant=[1, 2]))
    compare(cases, 11)
