"""Reductions, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
