"""Quantised tensors, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)


def reals(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 50).astype(np.float32)


def scales(*shape: int) -> Any:
    return RNG.uniform(0.1, 1, shape).astype(np.float32)


def whole(dtype: str, *shape: int) -> Any:
    """Integers of at most seven bits, or onnxruntime saturates sums of products on some CPUs."""
    return RNG.integers(0 if dtype.startswith("u") else -63, 64, shape).astype(dtype)


def test_to_integers_and_back(compare: Any, make_case: Any) -> None:
    ties = np.array([0.5, 1.5, 2.5, -0.5, -300, 300], np.float32)
    one = np.array(1, np.float32)
    compare(
        [
            make_case("QuantizeLinear", ties, one, np.array(0, np.int8)),
            make_case("QuantizeLinear", ties, one),
            make_case("QuantizeLinear", reals(2, 3, 4), scales(3), whole("uint8", 3), axis=1),
            make_case("QuantizeLinear", reals(2, 3, 4), scales(4), whole("int8", 4), axis=-1),
            make_case("QuantizeLinear", reals(9) * 1000, one, np.array(3, np.int16)),
            make_case("DequantizeLinear", whole("uint8", 2, 3), scales(3), whole("uint8", 3), axis=1),
            make_case("DequantizeLinear", whole("int32", 5), np.array(0.5, np.float32)),
            make_case("QuantizeLinear", reals(4, 7), scales(4, 3), whole("uint8", 4, 3), axis=1, block_size=3),
            make_case("DequantizeLinear", whole("int8", 6, 2), scales(2, 2), whole("int8", 2, 2), axis=0, block_size=3),
        ],
        21,
    )


def test_the_range_of_bytes_follows_the_elements(compare: Any, make_case: Any) -> None:
    tensors = (reals(3, 4), abs(reals(3, 4)) + 1, -abs(reals(3, 4)), np.zeros((3, 4), np.float32))
    compare([make_case("DynamicQuantizeLinear", tensor, outputs=3) for tensor in tensors], 13)


def test_products(compare: Any, make_case: Any) -> None:
    a, b = whole("uint8", 2, 3, 4), whole("int8", 4, 5)
    point, one = np.array(7, np.uint8), np.array([3], np.int8)
    quantised = [a, np.array(0.1, np.float32), point, b, np.array(0.2, np.float32), one[0].reshape(())]
    compare(
        [
            make_case("MatMulInteger", a, b),
            make_case("MatMulInteger", a, b, point, one),
            make_case("MatMulInteger", a, b, point, whole("int8", 5)),
            make_case("QLinearMatMul", *quantised, np.array(3, np.float32), np.array(100, np.uint8)),
            make_case("QLinearMatMul", *quantised, np.array(0.1, np.float32), np.array(100, np.uint8)),
        ],
        13,
    )


def test_fewer_bits_are_refused(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="quantisation to int4 is not supported"):
        compare([make_case("QuantizeLinear", reals(4), np.array(1, np.float32), output_dtype=22)], 21, expected=[])
