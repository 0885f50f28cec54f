"""Quantised tensors, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

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


def test_half_precision_is_divided_in_float32(compare: Any, make_case: Any) -> None:
    x, scale = (RNG.standard_normal(2000) * 10).astype(np.float16), np.array(0.1, np.float16)
    compare([make_case("QuantizeLinear", x, scale, np.array(3, np.int8))], 21, rtol=0, atol=0)


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


def test_products_as_real_numbers(compare: Any, make_case: Any) -> None:
    b, ours = whole("int8", 4, 5), {"domain": "com.microsoft"}
    bias, left = reals(5), [whole("uint8", 3, 4), b, np.float32(0.1)]
    compare(
        [
            make_case("DynamicQuantizeMatMul", reals(2, 3, 4), b, scales(5), whole("int8", 5), bias, **ours),
            make_case("DynamicQuantizeMatMul", reals(3, 4), b, np.array([0.2], np.float32), constant=[1, 2], **ours),
            make_case("DynamicQuantizeMatMul", reals(4), whole("int8", 4), np.float32([0.2]), None, reals(1), **ours),
            make_case("MatMulIntegerToFloat", *left, scales(5), np.uint8(7), whole("int8", 5), bias, **ours),
            make_case("MatMulIntegerToFloat", *left, np.float32(0.2), **ours),
        ],
        13,
        rtol=1e-3,
        atol=1e-3,
    )


def test_fewer_bits_are_refused(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="quantisation to int4 is not supported"):
        compare([make_case("QuantizeLinear", reals(4), np.array(1, np.float32), output_dtype=22)], 21, expected=[])


@pytest.mark.parametrize("kind", ["FLOAT4E2M1", "FLOAT8E5M2", "INT4"])
def test_casts_to_fewer_bits_are_refused(compare: Any, make_case: Any, kind: str) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match=f"element type {kind[:4].lower()}.* is not supported"):
        compare([make_case("Cast", reals(4), to=TensorProto.DataType.Value(kind))], 23, expected=[])


def test_convolutions(compare: Any, make_case: Any) -> None:
    a, b = whole("uint8", 1, 4, 6, 7), whole("int8", 6, 4, 3, 3)
    point, one = np.array(7, np.uint8), np.array(3, np.int8)
    scales_of = [np.array(0.1, np.float32), point]
    result = [np.array(4, np.float32), np.array(100, np.uint8)]
    quantised = [a, *scales_of, b, scales(6), np.zeros(6, np.int8), *result]
    bias = RNG.integers(-900, 900, 6).astype(np.int32)
    grouped = [whole("int8", 1, 4, 5, 5), np.array(0.1, np.float32), np.array(-3, np.int8)]
    weights = [whole("int8", 8, 1, 3, 3), np.array(0.2, np.float32), np.array(0, np.int8)]
    compare(
        [
            make_case("ConvInteger", a, b),
            make_case("ConvInteger", a, b, point, one, pads=[1, 2, 0, 1], strides=[2, 1]),
            make_case("ConvInteger", a, b, point, auto_pad="SAME_UPPER", strides=[2, 2]),
            make_case("QLinearConv", *quantised),
            make_case("QLinearConv", *quantised, bias, pads=[1, 1, 1, 1], dilations=[2, 1]),
            make_case("QLinearConv", *grouped, *weights, np.array(3, np.float32), np.array(5, np.int8), group=4),
        ],
        13,
        atol=1.0,  # a tie may be rounded to the other side
    )


def test_operators_of_onnxruntime(compare: Any, make_case: Any) -> None:
    def triple(dtype: str, *shape: int) -> list[Any]:
        return [whole(dtype, *shape), np.array(0.1, np.float32), np.array(7, dtype)]

    after = [np.array(0.3, np.float32), np.array(100, np.uint8)]
    ours = {"domain": "com.microsoft"}
    x = triple("uint8", 1, 3, 6, 6)
    gemm = [*triple("uint8", 4, 8), *triple("int8", 8, 5)]
    compare(
        [
            make_case("QLinearAdd", *x, *triple("uint8", 3, 1, 6), *after, **ours),
            make_case("QLinearMul", *x, *triple("uint8", 1, 3, 6, 6), *after, **ours),
            make_case("QLinearGlobalAveragePool", *x, *after, channels_last=0, **ours),
            make_case("QLinearAveragePool", *x, *after, kernel_shape=[2, 2], strides=[2, 2], **ours),
            make_case("QLinearConcat", *after, *x, *triple("uint8", 1, 2, 6, 6), axis=1, **ours),
            make_case("QLinearSigmoid", *x, np.array(0.01, np.float32), np.array(0, np.uint8), **ours),
            make_case("QLinearLeakyRelu", *x, *after, alpha=0.1, **ours),
            make_case("QLinearSoftmax", *x, np.float32(1 / 256), np.uint8(0), axis=1, opset=13, **ours),
            make_case("QLinearWhere", whole("uint8", 3, 1, 6) > 31, *x, *triple("uint8", 1, 6), *after, **ours),
            make_case("QGemm", *gemm, RNG.integers(-99, 99, 5).astype(np.int32), *after, **ours),
        ],
        13,
        atol=1.0,
    )


def test_weights_of_4_bits_are_read_as_numbers(compare: Any, make_case: Any) -> None:
    import ml_dtypes

    generator = np.random.default_rng(0)
    signed = generator.integers(-8, 8, (4, 6)).astype(np.int8).astype(ml_dtypes.int4)
    unsigned = generator.integers(0, 16, (4, 6)).astype(np.uint8).astype(ml_dtypes.uint4)
    scale, scales = np.float32(0.1), generator.uniform(0.1, 1, (2, 6)).astype(np.float32)
    zeros = np.arange(12).reshape(2, 6).astype(np.uint8).astype(ml_dtypes.uint4)
    compare(
        [
            make_case("DequantizeLinear", signed, np.array(scale), constant=[0, 1]),
            make_case("DequantizeLinear", unsigned, scales[0], zeros[0], constant=[0, 1, 2], axis=1),
            make_case("DequantizeLinear", unsigned, scales, zeros, constant=[0, 1, 2], axis=0, block_size=2),
            make_case("Cast", signed, constant=[0], to=1),
        ],
        21,
    )


def _copied_weights(reading: str) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A product with weights of 4 bits that are transposed and then read by an operator."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node(reading, ["t", "s"] if reading == "DequantizeLinear" else ["x", "t"], ["d"]),
        helper.make_node("Cast", ["d"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    weights = [helper.make_tensor("w", TensorProto.INT4, [2, 2], [1, -2, 7, -8])]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(nodes, "graph", ports[:1], ports[1:], [*weights, scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {"x": reals(2, 2)}


def test_copied_weights_of_4_bits_are_read_as_numbers(compare_model: Any) -> None:
    compare_model(*_copied_weights("DequantizeLinear"))


def test_weights_of_4_bits_that_decide_a_type_are_refused(compare_model: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="int4 of constant w is supported where it is dequantised or cast, alone"):
        compare_model(*_copied_weights("CastLike"))
