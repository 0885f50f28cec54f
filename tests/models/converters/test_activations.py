"""Activation functions, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def test_activations(compare: Any, make_case: Any) -> None:
    x = np.array([[-3, -0.5, 0, 0.2], [1, 2.5, 90, -90]], np.float32)
    compare(
        [
            make_case("Celu", x, alpha=2.0),
            make_case("Elu", x),
            make_case("Elu", x, alpha=0.3),
            make_case("HardSigmoid", x),
            make_case("HardSigmoid", x, alpha=0.3, beta=0.1),
            make_case("HardSwish", x),
            make_case("LeakyRelu", x, alpha=0.2),
            make_case("Mish", x),
            make_case("Relu", x),
            make_case("Selu", x),
            make_case("Selu", x, alpha=2.0, gamma=0.5),
            make_case("Shrink", x, lambd=0.4, bias=0.1),
            make_case("Softplus", x),
            make_case("Softsign", x),
            make_case("ThresholdedRelu", x, alpha=0.6),
        ],
        18,
    )


def test_small_results_keep_their_digits(compare: Any, make_case: Any) -> None:
    """The logarithm of a rounded `1 + exp(x)` loses them."""
    x = np.linspace(-20, 40, 61, dtype=np.float32)
    compare([make_case("Softplus", x), make_case("Mish", x)], 18, rtol=1e-6, atol=0)
    with_limits = np.array([np.nan, np.inf, -np.inf, -3e38, 3e38, 0, 1e-40], np.float32)
    compare([make_case("Softplus", with_limits), make_case("Mish", with_limits)], 18, rtol=1e-6, atol=1e-38)


def test_a_sixth_is_a_float_of_32_bits(compare: Any, make_case: Any) -> None:
    compare([make_case("HardSwish", np.linspace(-4, 4, 17))], 18, rtol=1e-12, atol=1e-12)


def test_gelu(compare: Any, make_case: Any) -> None:
    x = np.linspace(-5, 5, 16, dtype=np.float32)
    compare([make_case("Gelu", x), make_case("Gelu", x, approximate="tanh")], 20)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_slopes_of_all_shapes(compare: Any, make_case: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4), dtype=np.float32)
    slopes = [(3, 1), (1,), (4,), (3, 4), (2, 3, 4), (1, 1, 1), (2, 1, 1)]
    compare([make_case("PRelu", x, np.full(shape, 0.3, np.float32)) for shape in slopes], 17)
    x[1, 2, 3] = 0
    special = [(shape, slope) for shape in slopes for slope in (np.inf, np.nan)]  # onnxruntime makes 0 or NaN of 0
    cases = [make_case("PRelu", x, np.full(shape, slope, np.float32)) for shape, slope in special]
    compare(cases, 17, expected=[np.where(x > 0, x, np.float32(slope) * x) for _, slope in special])


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_and_its_like(compare: Any, make_case: Any, opset: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4), dtype=np.float32)
    names = ("Softmax", "LogSoftmax", "Hardmax")
    compare([make_case(name, x, axis=axis) for name in names for axis in (0, 1, -1)], opset)
    compare([make_case(name, x) for name in names], opset)
