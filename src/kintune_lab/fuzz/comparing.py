"""Compares values with those of a reference, allowing for what rounding does to the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kintune_lab.fuzz.evaluation import Value
from kintune_lab.fuzz.values import Array, is_large

__all__ = ["UNDECIDED", "difference"]

UNDECIDED = "rounding alone decides"
"""Returned for values of which most differ no more than rounding makes them."""

_TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-8}
_FACTOR = 16.0  # a value may be so many times as far away as noise moves it
_FIXED_SHARE = 0.5  # at least so many values must agree or be allowed for without noise


def difference(
    found: Value, wanted: Value, samples: Sequence[Value] = (), *, overflows: bool = False, floor: float = 0.0
) -> str:
    """Describes in one line how a value differs from the one that is wanted; "" if it does not.

    Floats agree within a tolerance of their type, the least normal number and `floor`, relative to themselves and to
    the root mean square of all finite ones; infinities and not-a-numbers where both have them, or the other has a
    number near the largest one; others if they are equal.  `samples` are the reference's values with noise: a value may
    differ by 16 times what they move it, and in any way if noise changes whether it is finite.  Where some result
    `overflows`, all infinities, not-a-numbers and numbers near the largest one are alike.

    Returns:
        `UNDECIDED` where more than half of the values differ and noise allows for it.
    """
    if isinstance(found, list) or isinstance(wanted, list):
        if not (isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted)):
            return "is another sequence"
        return next(filter(None, (difference(*pair, floor=floor) for pair in zip(found, wanted, strict=True))), "")
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype:
        return f"is {found.dtype} instead of {wanted.dtype}"
    if found.shape != wanted.shape:
        return f"has shape {list(found.shape)} instead of {list(wanted.shape)}"
    if not wanted.size:
        return ""
    apart = _apart(found, wanted)
    if overflows and wanted.dtype.name in _TOLERANCE:
        apart[(is_large(found) | ~np.isfinite(found)) & (is_large(wanted) | ~np.isfinite(wanted))] = 0.0
    with np.errstate(all="ignore"):
        bad = apart > _allowed(wanted, floor)
        if not bad.any():
            return ""
        excused = np.zeros_like(bad)
        for sample in samples:
            if isinstance(sample, list) or np.shape(sample) != wanted.shape:
                return UNDECIDED
            moved = _apart(np.asarray(sample), wanted)
            excused |= apart <= _FACTOR * moved
    wrong = bad & ~excused
    if not wrong.any():
        return UNDECIDED if np.count_nonzero(bad) > _FIXED_SHARE * bad.size else ""
    at = np.unravel_index(int(np.argmax(np.where(wrong, apart, -1.0))), wrong.shape)
    place = ", ".join(str(int(index)) for index in at)
    said = f"{_spelled(found[at])} instead of {_spelled(wanted[at])} at [{place}]"
    return f"{np.count_nonzero(wrong)} of {wrong.size} values differ: {said}"


def _allowed(wanted: Array, floor: float) -> NDArray[np.float64]:
    tolerance = _TOLERANCE.get(wanted.dtype.name, 0.0)
    values = np.abs(wanted.astype(np.float64))
    finite = values[np.isfinite(values)]
    scale = float(np.sqrt(np.mean(np.square(finite)))) if finite.size and tolerance else 0.0
    least = max(float(np.finfo(wanted.dtype).tiny), floor) if tolerance else 0.0  # denormal numbers are not compared
    allowed: NDArray[np.float64] = least + tolerance * (np.where(np.isfinite(values), values, 0.0) + min(scale, 1.0))
    return allowed


def _apart(found: Array, wanted: Array) -> NDArray[np.float64]:
    """The distances of the values: infinite where only one of them is finite, or they are different infinities."""
    if wanted.dtype.kind in "iu":
        wide = np.abs(found.astype(object) - wanted.astype(object)) if wanted.dtype.itemsize == 8 else None
        if wide is not None:
            return np.asarray(wide).astype(np.float64)
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    apart[np.isnan(apart)] = np.inf
    if wanted.dtype.name in _TOLERANCE:  # the order of operations decides whether an intermediate result overflows
        apart[(is_large(found) & ~np.isfinite(wanted)) | (~np.isfinite(found) & is_large(wanted))] = 0.0
    return np.asarray(apart)


def _spelled(value: Array) -> str:
    return str(value) if value.dtype.kind in "biu" else f"{float(value):.7g}"
