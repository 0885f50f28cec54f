"""Element-wise arithmetic, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from kintune.errors import ModelError

pytestmark = pytest.mark.tvm

REALS = ("Acosh", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Round", "Sigmoid", "Sin")
REALS += ("Sinh", "Sqrt", "Tan", "Tanh", "Reciprocal", "Neg", "Abs", "Sign")


def values(dtype: str = "float32") -> Any:
    return np.array([[1.25, 2.5, 3.5, 0.5], [1.5, 7.0, 1e-3, 4.0]], dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_of_reals(compare: Any, make_case: Any, dtype: str) -> None:
    only_float32 = {"Acosh", "Asinh", "Atan", "Cosh", "Sinh", "Tan", "Erf", "Cos", "Round"}
    names = [name for name in REALS if dtype == "float32" or name not in only_float32]
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    compare([make_case(name, values(dtype) + (name == "Acosh")) for name in names], 17, tolerance, tolerance)


def test_what_is_not_a_number_stays_that(compare: Any, make_case: Any) -> None:
    x = np.array([[np.nan, 1, -2, np.inf], [-np.inf, 0.5, np.nan, 0]], np.float32)
    z = np.array([[1, np.nan, -1, 2], [3, np.nan, np.nan, -0.5]], np.float32)
    low, high = np.float32(-0.5), np.float32(0.75)
    compare(
        [
            make_case("Max", x, z),
            make_case("Max", z, x, low, constant=[2]),
            make_case("Min", low, x, constant=[0]),
            make_case("Min", x, z),
            make_case("Clip", x, low, high, constant=[1, 2]),
            make_case("Clip", x, high, low, constant=[1, 2]),
            make_case("Clip", x, low, high),
            make_case("Clip", x, np.float32(np.nan), high),  # a bound that is NaN bounds nothing
            make_case("Clip", x, low, np.float32(np.nan)),
            make_case("Clip", x, None, high, constant=[2]),  # what is not given is the last finite number
            make_case("Clip", x, low, constant=[1]),
            make_case("Clip", x.astype(np.float64), None, np.float64(high), constant=[2]),
            make_case("Clip", x, np.float32(-np.inf), high, constant=[1, 2]),
            make_case("Relu", x),
            make_case("Sign", x),
            make_case("LeakyRelu", x),
            make_case("IsInf", x),
            make_case("IsInf", x, detect_negative=0),
            make_case("IsInf", x, detect_positive=0),
            make_case("IsNaN", x),
        ],
        17,
    )


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_integers(compare: Any, make_case: Any, dtype: str) -> None:
    signs = 1 if dtype.startswith("u") else -1
    a = np.array([[7, 8, 9], [100, 0, 5]], dtype)
    a[0, 0] *= signs
    b = np.array([2, 3, 4], dtype)
    wide = dtype in ("int32", "int64")
    cases = [make_case("Max", a, b), make_case("Min", a, b), make_case("Mod", a, b), make_case("Mod", a, b, fmod=1)]
    cases += [make_case("Clip", a, np.array(1, dtype), np.array(8, dtype), constant=[1, 2]), make_case("Abs", a)]
    cases += [make_case("Sign", a)]
    if wide:
        b = b * np.array([1, -1, 1], dtype)
        cases += [make_case("Div", a, b), make_case("Mod", a, b), make_case("Mod", a, b, fmod=1)]
        cases += [
            make_case("Neg", a),
            make_case("Pow", a, abs(b)),
            make_case("Pow", a, np.array(3, dtype), constant=[1]),
        ]
        cases += [make_case("Pow", a, np.array([2.0, 1.0, 0.0], np.float32)), make_case("Add", a, b)]
    compare(cases, 17)


def test_powers_have_the_type_of_their_base(compare: Any, make_case: Any) -> None:
    x = values()
    compare(
        [
            make_case("Pow", x, np.array([2, 3, -1, 0], np.int64)),
            make_case("Pow", x, np.array([0.5, 1.5, -1, 0], np.float32)),
            *(make_case("Pow", x, np.float32(power), constant=[1]) for power in (0.5, 1, 2, 3, 5, -2, 2.5)),
            make_case("Pow", x, np.full((3, 1, 4), 2, np.float32), constant=[1]),
            make_case("Mod", x, np.array([0.4, -0.7, 2, -3], np.float32), fmod=1),
        ],
        17,
    )


def test_bits(compare: Any, make_case: Any) -> None:
    a, b = np.array([1, 200, 77], np.uint8), np.array([1, 2, 3], np.uint8)
    compare(
        [
            make_case("BitShift", a, b, direction="LEFT"),
            make_case("BitShift", a, b, direction="RIGHT"),
            make_case("BitwiseAnd", a, b),
            make_case("BitwiseOr", a, b),
            make_case("BitwiseXor", a, b),
            make_case("BitwiseNot", a.astype(np.int32)),
            make_case("Not", a > 5),
            make_case("Xor", a > 5, b > 1),
            make_case("Equal", a > 5, b > 1),
        ],
        18,
    )


def test_several_operands_broadcast(compare: Any, make_case: Any) -> None:
    x, row, column = values(), np.array([1, 2, 3, 4], np.float32), np.array([[5], [6]], np.float32)
    compare([make_case(name, x, row, column) for name in ("Sum", "Mean", "Max", "Min")], 17)
    compare([make_case(name, x) for name in ("Sum", "Mean", "Max", "Min")], 17)


def test_old_operands_are_aligned_from_an_axis_on(compare: Any, make_case: Any) -> None:
    x, y = np.ones((2, 3, 4, 5), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    wanted = x + y[None, :, :, None]
    compare([make_case("Add", x, y, broadcast=1, axis=1)], 6, expected=[wanted])


def test_casts(compare: Any, make_case: Any) -> None:
    x = np.array([0.4, -1.6, 2.5, 100.0, 0], np.float32)
    compare(
        [
            *(make_case("Cast", x, to=kind) for kind in (1, 3, 5, 6, 7, 9, 10, 11)),
            *(make_case("Cast", np.array([-3, 0, 300], np.int64), to=kind) for kind in (1, 2, 3, 5, 6, 9, 12)),
            make_case("CastLike", x, np.zeros(1, np.int32)),
        ],
        17,
    )


def test_determinants(compare: Any, make_case: Any) -> None:
    draw = np.random.default_rng(0)
    tensors = [
        draw.standard_normal((*batch, n, n), dtype=np.float32) for n in (1, 2, 3, 4, 5, 9) for batch in ((), (2, 3))
    ]
    tensors.append(np.eye(6, dtype=np.float32)[[1, 0, 3, 4, 5, 2]])  # two exchanges and a cycle
    wanted = [np.asarray(np.linalg.det(tensor), np.float32) for tensor in tensors]
    compare([make_case("Det", tensor) for tensor in tensors], 22, expected=wanted)


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape)


def test_inverses(compare: Any, make_case: Any) -> None:
    tensors = [np.eye(4) + 0.2 * _numbers(*shape) for shape in ((4, 4), (2, 3, 4, 4))]
    tensors.append(np.eye(6)[[1, 0, 3, 4, 5, 2]])
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-10), ("float16", 2e-3)):
        cases = [make_case("Inverse", tensor.astype(dtype), domain="com.microsoft") for tensor in tensors]
        compare(cases, 17, tolerance, tolerance)
    with pytest.raises(ModelError, match="the inverse of 2x3 elements is not supported"):
        compare([make_case("Inverse", _numbers(2, 3).astype(np.float32), domain="com.microsoft")], 17, expected=[])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_a_division_that_a_condition_guards_does_not_trap(compare_model: Any, make_model: Any, dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    divisions = [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1} if dtype.startswith("int") else {})]

    def branch(name: str, divisors: Sequence[str]) -> Any:
        nodes = [
            helper.make_node(operator, ["a", divisor], [f"{name}{number}{place}"], **attributes)
            for number, (operator, attributes) in enumerate(divisions)
            for place, divisor in enumerate(divisors)
        ]
        results = [helper.make_tensor_value_info(node.output[0], kind, (3,)) for node in nodes]
        return helper.make_graph(nodes, name, [], results)

    def model(*divisors: str) -> Any:
        names = [f"y{number}" for number in range(len(divisions) * len(divisors))]
        then, other = branch("t", divisors), branch("o", ["one"] * len(divisors))
        return make_model(
            [helper.make_node("If", ["c"], names, then_branch=then, else_branch=other)],
            [("c", TensorProto.BOOL, ()), ("a", kind, (3,)), ("b", kind, (3,))],
            [(name, kind, (3,)) for name in names],
            {"zero": np.zeros((), dtype), "one": np.ones((), dtype)},
        )

    a = np.array([np.iinfo(dtype).min, 7, 9], dtype)
    trapping = np.array([-1, 0, 2] if dtype.startswith("int") else [0, 0, 2], dtype)
    compare_model(model("b"), {"c": np.array(False), "a": a, "b": trapping})
    compare_model(model("b"), {"c": np.array(True), "a": a, "b": np.array([2, 3, 4], dtype)})


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_a_division_by_an_input_does_not_trap(compare: Any, make_case: Any, dtype: str) -> None:
    """onnxruntime refuses a zero, and is ended by a signal for the least number divided by -1."""
    least = np.iinfo(dtype).min
    a, b = np.array([least, 7, 9], dtype), np.array([-1 if least else 1, 0, 2], dtype)
    wanted = [np.array([least, 7, 4], dtype), np.array([0, 0, 1], dtype)]
    compare([make_case(operator, a, b) for operator in ("Div", "Mod")], 17, expected=wanted)


def test_a_cast_to_bfloat16_and_back_rounds(compare_model: Any, make_model: Any) -> None:
    """Inside of a kernel, the compiler computes bfloat16 in float32; tensors may be moved between the two casts."""
    short, back = ({"to": kind} for kind in (TensorProto.BFLOAT16, TensorProto.FLOAT))
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["m"]),
        helper.make_node("Cast", ["m"], ["s"], **short),
        helper.make_node("Cast", ["s"], ["a"], **back),
        helper.make_node("Mul", ["a", "two"], ["y0"]),
        helper.make_node("Reshape", ["s", "rows"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"]),
        helper.make_node("CastLike", ["t", "x"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["y1"]),
    ]
    model = make_model(
        nodes,
        [("x", TensorProto.FLOAT, (64,))],
        [("y0", TensorProto.FLOAT, (64,)), ("y1", TensorProto.FLOAT, (8, 8))],
        {"one": np.float32(1), "two": np.float32(2), "rows": np.array([8, 8])},
    )
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    x[:5] = [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20, np.inf]
    compare_model(model, {"x": x}, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_quotient_by_a_constant_zero_is_infinite(compare: Any, make_case: Any, dtype: str) -> None:
    x = np.array([1.5, 0, -2, np.nan, -np.inf], dtype)
    zeros = [np.array(0, dtype), np.array([-0.0], dtype), np.array([0, -0.0, 1, 2, 0], dtype)]
    compare([make_case("Div", x, zero, constant=[1]) for zero in zeros], 17)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_what_is_taken_from_itself_or_multiplied_by_zero_keeps_nan(
    compare_model: Any, make_model: Any, dtype: str
) -> None:
    """The compiler takes these for 0 and true, of whatever number."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Sub", ["x", "x"], ["difference"]),
        helper.make_node("Equal", ["x", "x"], ["equal"]),
        helper.make_node("Not", ["equal"], ["not_a_number"]),
        helper.make_node("Mul", ["x", "zero"], ["product"]),
        helper.make_node("Add", ["product", "x"], ["sum"]),
    ]
    ports = [("x", kind), ("difference", kind), ("not_a_number", TensorProto.BOOL), ("sum", kind)]
    x, *outputs = ((name, type_, [64]) for name, type_ in ports)
    model = make_model(nodes, [x], outputs, {"zero": np.zeros((), dtype)})
    values = np.random.default_rng(0).standard_normal(64).astype(dtype)
    values[:8] = [np.nan, np.inf, -np.inf, 0, np.finfo(dtype).max, np.finfo(dtype).min, np.finfo(dtype).tiny, -1]
    compare_model(model, {"x": values}, rtol=0, atol=0)
