"""Reductions, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.tvm

NAMES = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def tensor(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(0.5, 2, shape).astype(np.float32)


def test_axes_are_an_attribute_or_an_operand(compare: Any, make_case: Any) -> None:
    x = tensor(2, 3, 4)
    compare([make_case(f"Reduce{name}", x, axes=[-1, 0], keepdims=0) for name in NAMES], 11)
    axes = np.array([1, -1], np.int64)
    compare([make_case(f"Reduce{name}", x, axes, constant=[1]) for name in NAMES], 18)
    compare([make_case(f"Reduce{name}", x, keepdims=0) for name in NAMES], 18)


def test_no_axes_reduce_nothing_when_asked_to(compare: Any, make_case: Any) -> None:
    x, none = tensor(2, 3), np.array([], np.int64)
    wanted = [x, x, np.log(x), x, x, x, x, x, x, x * x]
    names = [f"Reduce{name}" for name in NAMES]
    cases = [make_case(name, x, none, constant=[1], noop_with_empty_axes=1) for name in names]
    compare(cases, 18, expected=wanted)
    compare([make_case(name, x, none, constant=[1]) for name in names], 18)


def test_integers_and_truths(compare: Any, make_case: Any) -> None:
    for dtype in ("int32", "int64"):
        x = np.array([[1, -2, 3], [7, 5, 4]], dtype)
        names = [name for name in NAMES if name in ("Max", "Min", "Sum", "Mean", "Prod", "SumSquare", "L1")]
        names = [name for name in names if dtype == "int32" or name in ("Max", "Min", "Sum")]
        compare([make_case(f"Reduce{name}", x, axes=[1]) for name in names], 11)
    axes = np.array([1], np.int64)
    truths = np.array([[True, False], [False, False]])
    compare([make_case(f"Reduce{name}", truths, axes, constant=[1]) for name in ("Max", "Min")], 20)


def test_logarithms_of_great_sums_of_exponentials(compare: Any, make_case: Any) -> None:
    x = np.array([[1000, 1001], [-np.inf, -np.inf], [np.inf, 1], [-1000, 0]], np.float32)
    wanted = np.array([1001.3132617, -np.inf, np.inf, 0], np.float32)
    compare([make_case("ReduceLogSumExp", x, axes=[1], keepdims=0)], 13, expected=[wanted])


def test_positions_of_extremes(compare: Any, make_case: Any) -> None:
    x = np.array([[2, 7, 7], [5, 1, 1]], np.float32)
    compare(
        [
            make_case(name, x, axis=axis, keepdims=keep, select_last_index=last)
            for name in ("ArgMax", "ArgMin")
            for axis in (0, -1)
            for keep, last in ((1, 0), (0, 1))
        ],
        13,
    )


def rows_of_extremes(dtype: str) -> Any:
    """Rows that hold only the least, or only the greatest value of a type, or several of both."""
    floats = np.issubdtype(dtype, np.floating)
    limits: Any = np.finfo(dtype) if floats else np.iinfo(dtype)
    rows = [[limits.min] * 5, [limits.max] * 5, [limits.min, 0, limits.max, limits.max, limits.min]]
    return np.array(
        rows + ([[-np.inf] * 5, [np.inf] * 5, [-np.inf, limits.min] * 2 + [-np.inf]] if floats else []), dtype
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_positions_in_rows_of_the_extremes_of_a_type(compare: Any, make_case: Any, dtype: str) -> None:
    x = rows_of_extremes(dtype)
    names, kinds = ("ArgMax", "ArgMin"), ({}, {"select_last_index": 1, "keepdims": 0})
    compare([make_case(name, x, axis=1, **kind) for name in names for kind in kinds], 13)
    across = np.ascontiguousarray(x.T)
    cases = [make_case(name, across, axis=0, **kind) for name in names for kind in kinds]
    if dtype in ("float16", "float32"):
        cases.append(make_case("Hardmax", x))
    compare(cases, 13)


def test_positions_beside_nan(compare: Any, make_case: Any) -> None:
    """As in onnxruntime: NaN is the extreme where it comes first, and is ignored elsewhere."""
    nan, inf = np.nan, np.inf
    rows = [[nan, 1, 2, 3], [1, nan, 3, 2], [nan] * 4, [nan, inf, 1, inf], [1, nan, inf, inf], [inf, nan, -inf, inf]]
    rows += [[-inf, -inf, nan, nan], [inf, nan, inf, nan], [-inf, nan, -inf, nan]]
    x = np.array([*rows, [nan, -inf, -inf, 5]], np.float32)
    names = ("ArgMax", "ArgMin")
    cases = [make_case(name, x, axis=1, select_last_index=last) for name in names for last in (0, 1)]
    compare([*cases, make_case("Hardmax", x), make_case("ArgMax", np.ascontiguousarray(x.T), axis=0)], 13)


def test_no_position_among_no_elements(compare: Any, make_case: Any) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match=r"ArgMax \(node node0\).*dimension 1 has no elements"):
        compare([make_case("ArgMax", np.zeros((2, 0), np.float32), axis=1)], 13, expected=[np.zeros((2, 1), np.int64)])


def test_what_lies_at_the_position_of_a_masked_row(compare_model: Any, make_model: Any) -> None:
    """A table is read by the index of the greatest of scores that are masked altogether."""
    nodes = [
        helper.make_node("Where", ["allowed", "scores", "low"], ["masked"]),
        helper.make_node("ArgMax", ["masked"], ["at"], axis=1, keepdims=0),
        helper.make_node("Gather", ["table", "at"], ["y"]),
    ]
    boolean, real = TensorProto.BOOL, TensorProto.FLOAT
    ports = [("scores", real, [3, 4]), ("allowed", boolean, [3, 4]), ("table", real, [4, 5])]
    model = make_model(nodes, ports, [("y", real, [3, 5])], {"low": np.array(-np.inf, np.float32)}, 13)
    allowed = np.array([[False] * 4, [True] * 4, [False, False, True, False]])
    compare_model(model, {"scores": tensor(3, 4), "allowed": allowed, "table": tensor(4, 5)})


def test_running_sums(compare: Any, make_case: Any) -> None:
    x, axis = tensor(2, 5), np.array(-1, np.int32)
    kinds = [{"exclusive": e, "reverse": r} for e in (0, 1) for r in (0, 1)]
    compare([make_case("CumSum", x, axis, constant=[1], **kind) for kind in kinds], 14)
    wanted = np.cumprod(x, 1)
    shifted = np.concatenate([np.ones((2, 1), np.float32), wanted[:, :-1]], 1)
    backwards = np.cumprod(x[:, ::-1], 1)[:, ::-1]
    compare(
        [make_case("CumProd", x, axis, constant=[1], **kind) for kind in ({}, {"exclusive": 1}, {"reverse": 1})],
        26,
        expected=[wanted, shifted, backwards],
    )


def test_the_greatest(compare: Any, make_case: Any) -> None:
    x, k = np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32), np.array([2], np.int64)
    compare(
        [make_case("TopK", x, k, constant=[1], outputs=2, axis=a, largest=g) for a in (-1, 1, 0) for g in (0, 1)], 11
    )


def test_extremes_in_bfloat16(compare: Any, make_case: Any) -> None:
    """onnxruntime has no kernels of that type."""
    import ml_dtypes

    def short(*rows: Any) -> Any:
        return np.array(rows, ml_dtypes.bfloat16)

    x, y, k = short([1, np.nan, 3], [4, 6, 5]), short([2, 2, 2]), np.array([2])
    compare(
        [
            *(make_case(name, x, y) for name in ("Max", "Min")),
            *(make_case(name, x, axes=[1], keepdims=0) for name in ("ReduceMax", "ReduceMin")),
            *(make_case(name, x[1:], axis=1, keepdims=0) for name in ("ArgMax", "ArgMin")),
            make_case("IsNaN", x),
            make_case("TopK", x[1:], k, constant=[1], outputs=2),
        ],
        17,
        expected=[
            *(short([2, np.nan, 3], [4, 6, 5]), short([1, np.nan, 2], [2, 2, 2]), short(np.nan, 6), short(np.nan, 4)),
            *(np.array([1]), np.array([0]), np.array([[False, True, False], [False] * 3])),
            *(short([6, 5]), np.array([[1, 2]])),
        ],
    )


def test_integers_of_16_bits_are_sorted(compare: Any, make_case: Any) -> None:
    k = np.array([2])
    compare([make_case("TopK", np.array([3, -7, 300, 5], np.int16), k, constant=[1], outputs=2)], 17)
    for dtype in ("uint16", "uint32"):
        x = np.array([3, np.iinfo(dtype).max, 7], dtype)
        wanted = [x[[1, 2]], np.array([1, 2])]
        compare([make_case("TopK", x, k, constant=[1], outputs=2)], 17, expected=wanted)
