"""Fourier transforms of axes and of windows, compared with onnxruntime and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((2, 10, 3, 1)).astype(np.float32)
COMPLEX = RNG.standard_normal((2, 9, 3, 2)).astype(np.float32)


def number(value: int) -> Any:
    return np.array(value, np.int64)


def test_transforms_of_an_axis(compare: Any, make_case: Any) -> None:
    compare(
        [
            make_case("DFT", REAL),
            make_case("DFT", REAL, onesided=1),
            make_case("DFT", REAL, axis=2),
            make_case("DFT", REAL, axis=-2, onesided=1),
            make_case("DFT", REAL, number(7), constant=[1]),
            make_case("DFT", REAL, number(16), constant=[1], onesided=1),
            make_case("DFT", COMPLEX),
            make_case("DFT", COMPLEX, inverse=1),
            make_case("DFT", COMPLEX.astype(np.float64), axis=2, inverse=1),
        ],
        17,
    )


def test_the_axis_may_be_an_operand(compare: Any, make_case: Any) -> None:
    axes = [make_case("DFT", COMPLEX, None, number(axis), constant=[2]) for axis in (0, 1, -2)]
    compare([make_case("DFT", COMPLEX), make_case("DFT", REAL, number(8), number(1), constant=[1, 2]), *axes], 20)


@pytest.mark.parametrize("window", ["constant", "given", "none"])
def test_transforms_of_windows(compare: Any, make_case: Any, window: str) -> None:
    signal = RNG.standard_normal((2, 50, 1)).astype(np.float32)
    shape = np.hanning(16).astype(np.float32) if window != "none" else None
    length = number(16) if window != "given" else None
    known = [1, 3] if window == "given" else [1, 2, 3]
    cases = [make_case("STFT", signal, number(7), shape, length, constant=known)]
    if window != "given":  # onnxruntime wants the length, too
        cases.append(make_case("STFT", signal, number(3), shape, length, constant=known, onesided=0))
        both = RNG.standard_normal((1, 40, 2)).astype(np.float32)
        cases.append(make_case("STFT", both, number(5), shape, length, constant=known, onesided=0))
    compare(cases, 17)


def test_filters_of_constants(compare: Any, make_case: Any) -> None:
    numbers = (number(8), number(32), number(8000), np.float32(0), np.float32(4000))
    compare([make_case("MelWeightMatrix", *numbers, constant=range(5)), make_case("DFT", REAL)], 20)
