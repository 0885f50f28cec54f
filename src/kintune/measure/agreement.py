"""Compares the outputs of a kernel with those of its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NARROW_ERROR", "disagreement", "narrow_disagreement", "not_finite"]

_HALF_TOLERANCE = 2e-2
"""The tightest tolerance for 16-bit and shorter floats, whose own rounding in a sum is of this order."""

_FEW = 0.01
"""The share of bytes that may differ by one."""


NARROW_ERROR = 2e-2
"""The largest error of a candidate that computes with shorter numbers: the norm of the difference over that of the
reference.  bf16 has 8 bits of precision, so a rounded factor is off by up to 0.4 %, and a sum of such products by less;
a kernel that leaves out one of 32 terms is off by about 18 %."""


def disagreement(
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    rtol: float,
    atol: float,
    scratch: npt.NDArray[Any] | None = None,
) -> str:
    """Describes in one line how `actual` differs from `expected` (same shape and type); empty when they agree.

    The text before the colon names the class of the difference.

    Floats agree when |a - e| <= rtol * |e| + atol * max|e|: the absolute part scales with the output, or a softmax over
    thousands of classes would agree with zeros.  Not-a-number agrees with itself, infinity with the same infinity.
    Integers and booleans agree when they are equal.  Of bytes, which stand for quantised numbers, few may differ by
    one: a sum in another order is sometimes rounded to the other side.

    `scratch` is a buffer of the same shape and type for the differences; without it one is allocated.
    """
    if expected.dtype.kind in "biu":
        differ = int(np.count_nonzero(actual != expected))
        agree = not differ or (differ <= _FEW * expected.size and _is_one_step(actual, expected))
        return "" if agree else f"wrong numbers: {differ} of {expected.size} elements differ"
    if expected.dtype.kind == "f" and _near(actual, expected, atol, scratch):
        return ""
    if expected.dtype.itemsize < 4:
        rtol, atol = max(rtol, _HALF_TOLERANCE), max(atol, _HALF_TOLERANCE)
    if expected.dtype.kind != "f" or expected.dtype.itemsize < 4:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    finite = np.isfinite(expected)
    lost = int(np.count_nonzero(finite & ~np.isfinite(actual)))
    if lost:
        return _lost(lost, expected.size)
    with np.errstate(invalid="ignore", over="ignore"):
        scale = float(np.max(np.abs(expected), where=finite, initial=0.0))
        error = np.abs(actual - expected)
        wrong = np.where(finite, error > rtol * np.abs(expected) + atol * scale, ~_same(actual, expected))
    differ = int(np.count_nonzero(wrong))
    if not differ:
        return ""
    largest = float(np.max(error, where=finite, initial=0.0))
    return (
        f"wrong numbers: {differ} of {expected.size} elements differ, "
        f"by at most {largest:.3g} where the largest is {scale:.3g}"
    )


def narrow_disagreement(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> str:
    """Describes in one line how `actual`, computed with shorter numbers, differs from `expected`; empty if they agree.

    Floats agree when the norm of their difference is at most `NARROW_ERROR` times the norm of what is expected, and
    when infinities and not-a-number are at the same places.  Integers and booleans agree when they are equal.
    """
    if expected.dtype.kind in "biu":
        return disagreement(actual, expected, 0.0, 0.0)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    lost = int(np.count_nonzero(finite & ~np.isfinite(actual)))
    if lost:
        return _lost(lost, expected.size)
    if not bool(np.all(finite | _same(actual, expected))):
        return "wrong numbers: not infinite where the reference is"
    actual, expected = actual[finite], expected[finite]
    difference, allowed = float(np.linalg.norm(actual - expected)), float(np.linalg.norm(expected))
    if difference <= NARROW_ERROR * allowed:
        return ""
    return f"wrong numbers: the norm of the difference is {difference:.3g} where that of the reference is {allowed:.3g}"


def _is_one_step(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    """Returns whether bytes differ by one at most."""
    if expected.dtype.kind == "b" or expected.dtype.itemsize > 1:
        return False
    return int(np.abs(actual.astype(np.int16) - expected.astype(np.int16)).max(initial=0)) <= 1


def _near(actual: npt.NDArray[Any], expected: npt.NDArray[Any], atol: float, scratch: npt.NDArray[Any] | None) -> bool:
    """Returns whether no element differs by more than the absolute tolerance: a cheap test that most outputs pass.

    It is False when an element is infinite or not a number.
    """
    if not expected.size:
        return True
    scale = max(float(expected.max()), -float(expected.min()))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(actual, expected, out=scratch)
    return bool(np.isfinite(scale)) and -atol * scale <= difference.min() and difference.max() <= atol * scale


def not_finite(actual: npt.NDArray[Any]) -> str:
    """Describes in one line how many elements of `actual` are not finite; empty when all are, as with integers."""
    if actual.dtype.kind in "biu":
        return ""
    lost = int(np.count_nonzero(~np.isfinite(actual)))
    return _lost(lost, actual.size) if lost else ""


def _lost(lost: int, size: int) -> str:
    return f"not finite: {lost} of {size} elements, which may never have been written"


def _same(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Returns where both are equal, infinities included, or both not a number."""
    same: npt.NDArray[np.bool_] = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return same
