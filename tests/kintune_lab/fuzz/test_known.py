"""What onnxruntime is known to compute otherwise than operators are defined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from kintune.models.evaluation import DEVIATING
from kintune_lab.fuzz.drawing import Drawer
from kintune_lab.fuzz.evaluation import Evaluator, Refused
from kintune_lab.fuzz.known import (
    DIFFERENCES,
    deviates_from_expected,
    error_of,
    expected_of,
    floor_of,
    may_lose_infinities,
    undefined,
)


def test_constants_of_which_another_result_is_expected_are_not_folded_by_onnxruntime() -> None:
    assert {operator for known in DIFFERENCES if known.expected for operator in known.operators} <= DEVIATING


def test_zero_times_a_slope_that_is_no_number_is_none() -> None:
    """onnxruntime has 0 or NaN."""
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    given = {"x": np.float32([0, 1, -1, 0]), "s": np.float32([np.nan, np.nan, np.nan, 2])}
    np.testing.assert_array_equal(expected_of(Evaluator(16), node, given)[0]["y"], [np.nan, 1, np.nan, 0])


def test_equal_and_denormal_elements_have_the_mean() -> None:
    """In onnxruntime they are NaN or infinite; what is not finite has no mean."""
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0])
    x = np.array([[1, 2, np.inf, np.nan, 1, -1e-40], [1, 4, np.inf, np.nan, np.nan, 1e-40]], np.float32)
    found = expected_of(Evaluator(13), node, {"x": x})[0]["y"]
    np.testing.assert_allclose(np.asarray(found)[0], [0, -1, np.nan, np.nan, np.nan, -1e-31], rtol=1e-5)


def test_planes_of_one_element_become_the_bias() -> None:
    """onnxruntime multiplies 1e3 by a factor, and subtracts as much again."""
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])
    x = np.array([[[1e3, 1e3], [1, 2]]], np.float32)
    values = {"x": x, "s": np.array([0.3, 1], np.float32), "b": np.array([0.1, 0], np.float32)}
    found = np.asarray(expected_of(Evaluator(13), node, values)[0]["y"])
    np.testing.assert_array_equal(found[0, 0], np.float32([0.1, 0.1]))
    np.testing.assert_allclose(found[0, 1], [-1, 1], rtol=1e-4)


def test_smoothed_negative_bytes_stay_negative() -> None:
    attributes = {"mode": "linear", "antialias": 1}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    values = {"x": np.array([[[[-100, 100], [-100, 100]]]], np.int8), "sizes": np.array([1, 1, 1, 2], np.int64)}
    np.testing.assert_array_equal(expected_of(Evaluator(19), node, values)[0]["y"], [[[[-100, 100]]]])


def test_places_of_extremes_are_those_of_numbers_unless_nan_comes_first() -> None:
    """onnxruntime has the place of the NaN where a tensor has one axis."""
    for data, wanted in (([-1, np.nan, 1], 2), ([np.nan, 1, 2], 0), ([-np.inf, np.nan], 0), ([3, 1], 0)):
        node = helper.make_node("ArgMax", ["x"], ["y"], axis=-1, keepdims=0)
        assert expected_of(Evaluator(13), node, {"x": np.array(data, np.float32)})[0]["y"] == wanted


def test_indices_are_cut_and_matrices_beside_vectors_transposed() -> None:
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"])
    values = {"i": np.array([-0.5, 1.5], np.float32), "d": np.array(2, np.int64), "v": np.array([0, 1], np.int64)}
    np.testing.assert_array_equal(expected_of(Evaluator(13), node, values)[0]["y"], np.eye(2))
    matrix, vector = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    for attributes, expected in (({}, False), ({"transA": 1}, True)):
        node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes)
        assert undefined(node, {"a": matrix, "b": vector}) is expected


def test_determinants_and_means_of_infinities_are_not_compared() -> None:
    assert undefined(helper.make_node("Det", ["x"], ["y"]), {"x": np.array([[1, np.inf], [0, 1]], np.float32)})
    given = {"x": np.array([1, np.inf], np.float32), "s": np.ones(2, np.float32)}
    for outputs, expected in ((["y"], False), (["y", "mean"], True)):
        assert undefined(helper.make_node("LayerNormalization", ["x", "s"], outputs), given) is expected


def test_infinities_in_products_of_three_tensors_are_not_compared() -> None:
    given = {"a": np.ones((2, 2), np.float32), "b": np.array([1, np.inf], np.float32)}
    for operands, equation, expected in ((["a", "b"], "ij,j->i", False), (["a", "b", "b"], "ij,j,j->i", True)):
        assert undefined(helper.make_node("Einsum", operands, ["y"], equation=equation), given) is expected


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceL1", "ReduceSumSquare"])
def test_sums_of_integers_keep_all_digits(operator: str) -> None:
    """onnxruntime sums them in float64."""
    node = helper.make_node(operator, ["x"], ["y"], keepdims=1)
    x = np.array([(1 << 30) + 1, (1 << 30) + 1, 1 << 59 if operator != "ReduceSumSquare" else 3], np.int64)
    wanted = np.sum(x * x if operator == "ReduceSumSquare" else x, keepdims=True)
    np.testing.assert_array_equal(expected_of(Evaluator(12), node, {"x": x})[0]["y"], wanted)


def test_what_onnxruntime_computes_wrongly_is_in_no_graph_inside() -> None:
    def no_nodes(drawer: Drawer, operator: str) -> None:
        raise NotImplementedError

    drawer = Drawer(np.random.default_rng(0), 13, [], no_nodes)
    x = drawer.constant([0.7, -0.2], "float64")
    drawer.node("Shrink", [x], {})
    with pytest.raises(Refused, match="computes something else"):
        drawer.body().node("Shrink", [x], {})
    inner = helper.make_node("ReduceSum", ["x"], ["y"])
    outer = helper.make_graph([inner], "body", [], [helper.make_tensor_value_info("y", TensorProto.INT64, None)])
    node = helper.make_node("If", ["c"], ["z"], then_branch=outer, else_branch=outer)
    for value, expected in ((1, False), (1 << 40, True)):
        assert undefined(node, {"c": np.array(True), "x": np.array([value], np.int64)}) is expected


def test_what_is_not_defined() -> None:
    big, empty = np.array([1 << 40, 1 << 40, 2], np.int64), np.zeros((2, 0), np.uint8)
    product = helper.make_node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])
    common = {"s": np.array(0.5, np.float32), "z": np.array(1, np.uint8), "b": empty.T}
    assert undefined(product, {**common, "a": empty})
    assert undefined(helper.make_node("ReduceProd", ["x"], ["y"]), {"x": big})
    assert not undefined(helper.make_node("ReduceProd", ["x"], ["y"]), {"x": big[1:]})
    layer = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=1)
    weights = {"w": np.ones((1, 1, 1), np.float32), "r": np.ones((1, 1, 1), np.float32)}
    for value, expected in ((1e4, False), (3e38, True)):
        assert undefined(layer, {**weights, "x": np.full((1, 1, 1), value, np.float32)}) is expected


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        ("GroupNormalization", [np.float32([[1.0, 3e38]])], True),
        ("GroupNormalization", [np.float32([[1.0, np.inf]])], False),
        ("BitCast", [np.float32([1.0])], False),
        ("BitCast", [np.float32([np.nan])], True),
        ("RoiAlign", [np.ones((1, 1, 2, 2), np.float32), np.float32([[0, 0, 1, 1]])], False),
        ("RoiAlign", [np.ones((1, 1, 0, 2), np.float32), np.float32([[0, 0, 1, 1]])], True),
        ("RoiAlign", [np.ones((1, 1, 2, 2), np.float32), np.float32([[0, 0, np.inf, 1]])], True),
    ],
)
def test_variances_that_overflow_bits_of_nan_and_regions_of_nothing_are_not_defined(
    operator: str, operands: list[np.ndarray], expected: bool
) -> None:
    names = [f"x{number}" for number in range(len(operands))]
    assert undefined(helper.make_node(operator, names, ["y"]), dict(zip(names, operands, strict=True))) is expected


def test_the_floor_of_gelu_is_what_rounding_leaves() -> None:
    """Where the tanh is nearly -1, more than of other polynomials, and not more than the floor."""
    x = np.linspace(-6, 6, 4001)
    y = (0.7978845608 * (x + 0.044715 * x**3)).astype(np.float32)
    found = np.float32(0.5) * x.astype(np.float32) * (np.float32(1) + np.tanh(y))
    furthest = np.abs(found - 0.5 * x * (1 + np.tanh(y.astype(np.float64))))[x < -3].max()
    assert floor_of(["Add", "Tanh"]) < furthest < floor_of(["com.microsoft.FastGelu", "Tanh"])
    assert floor_of(["Add"]) == 0


def test_an_infinity_may_be_lost_with_zero_points_and_composed_products_alone() -> None:
    assert may_lose_infinities(["Add", "com.microsoft.MatMulNBits"])
    assert may_lose_infinities(["com.microsoft.Attention"])
    assert may_lose_infinities(["MatMul", "MatMul"])
    assert not may_lose_infinities(["Add", "MatMul"])


def test_what_onnxruntime_computes_otherwise_is_known_by_its_values() -> None:
    node = helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)
    for data, wanted, expected in (([1, 2], 2, False), ([1, np.inf], np.inf, False), ([1, np.nan], np.nan, True)):
        values = {"x": np.array(data, np.float32), "y": np.array(wanted, np.float32)}
        assert deviates_from_expected(Evaluator(13), node, values) is expected


def test_zero_points_leave_an_error_of_the_sum_that_they_are_taken_off_with() -> None:
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=1, bits=8, block_size=64
    )
    x = np.full((1, 64), 29084.7, np.float32)
    taken_off = x.sum() * np.float32(102)
    unit = float(np.spacing(np.float32(taken_off)))
    assert unit / 4 < error_of(node, [x, None, np.ones(1, np.float32)]) < 8 * unit
    assert error_of(helper.make_node("Add", ["x", "x"], ["y"]), [x, x]) == 0


def test_the_middle_of_a_grid_is_as_far_off_as_rounding_leaves() -> None:
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"])
    middle = (np.float32(-1) + np.float32(1 / 7)) + np.float32(3) * np.float32(2 / 7)
    theta = np.full((1, 2, 3), 4e4, np.float32)
    assert 0 < abs(middle * 4e4) < error_of(node, [theta, None]) < 8 * abs(middle * 4e4)
    assert error_of(node, [theta.astype(np.float64), None]) < 1e-10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exponential_minus_one_is_off_by_the_rounding_of_one(dtype: str) -> None:
    x = -np.logspace(-9, -1, 999).astype(dtype)
    off = np.abs(np.exp(x) - x.dtype.type(1) - np.expm1(x)).max()
    assert off / 4 < error_of(helper.make_node("Elu", ["x"], ["y"]), [x]) < 2 * off
