"""What rounding does to a model: how far its outputs move when inputs and weights do, in the last place.

A program that adds in another order cannot be nearer to the reference than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kintune.runtime.inputs import Array

__all__ = ["FACTOR", "MOST", "Allowance", "allow", "moved"]

FACTOR = 4.0
"""A right program may be so many times as far from the reference as the reference, moved, is from itself."""

MOST = 0.1
"""But never farther, as a root mean square, than this share of the deviation of the reference's values."""

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_UNITS = {"float16": 2.0, "bfloat16": 2.0}  # units in the last place; others have `_FEW`
_FEW = 4.0
_STEP_SHARE = 0.01  # of quantised values, so many may be one step apart

_Floats = npt.NDArray[np.float64]


class Allowance(NamedTuple):
    """What noise allows of one output: `wrong` says where its values are still too far away.

    `noise` is how far the reference moves, as a share of the deviation of its values; `beyond` whether the output is
    farther away than `MOST` allows, or than `FACTOR` times the noise, as a whole.
    """

    wrong: npt.NDArray[np.bool_]
    noise: float
    beyond: bool


def moved(array: Array, seed: Sequence[int]) -> Array:
    """The array, its floating-point values changed by at most a few units in the last place; others as they are."""
    name = array.dtype.name
    if name not in _EPSILON or not array.size:
        return array
    most = _UNITS.get(name, _FEW) * _EPSILON[name]
    generator = np.random.default_rng(list(seed))
    if name == "float64":
        return np.asarray(array * (1.0 + most * generator.uniform(-1.0, 1.0, array.shape)))
    share = np.float32(most) * (generator.random(array.shape, np.float32) * np.float32(2) - np.float32(1))
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.asarray(array, np.float32)
        return np.asarray(wide + wide * share).astype(array.dtype)


def allow(output: Array, expected: Array, samples: Sequence[Array], plain: _Floats) -> Allowance:
    """Where `output` is farther from `expected` than `plain` (absolute, an entry a value) and noise allow.

    `samples` are the same output of the reference with noise, at least one.  All have the same shape.
    """
    a, b = np.asarray(output, np.float64), np.asarray(expected, np.float64)
    errors, moves = _apart(a, b), [_apart(np.asarray(sample, np.float64), b) for sample in samples]
    if expected.dtype.kind in "biu":
        return _allow_integers(expected, errors, moves)
    wrong = _too_far(errors, moves, plain)
    if wrong.any():  # quantised values flip here or there: as many in one run as in another, not the same ones
        others = [[*moves[:i], *moves[i + 1 :]] for i in range(len(moves))]
        flips = [
            np.count_nonzero(_too_far(move, rest, plain)) for move, rest in zip(moves, others, strict=True) if rest
        ]
        if np.count_nonzero(wrong) <= FACTOR * max(flips, default=0):
            wrong = errors > plain + FACTOR * max(float(move.max()) for move in moves)
    excess = np.where(np.isfinite(errors), np.maximum(errors - plain, 0.0), 0.0)
    noise = max(_root_mean_square(np.where(np.isfinite(move), move, 0.0)) for move in moves)
    scale = _scale(b)
    beyond = _root_mean_square(excess) > min(FACTOR * noise, MOST * scale)
    return Allowance(wrong, noise / scale if scale else 0.0, bool(beyond))


def _allow_integers(expected: Array, errors: _Floats, moves: Sequence[_Floats]) -> Allowance:
    """Values that flip with noise may differ, and as many others as flip at most; quantised ones by a step or so."""
    flips = [move > 0 for move in moves]
    most = max(int(np.count_nonzero(flip)) for flip in flips)
    wrong = (errors > 0) & ~np.logical_or.reduce(flips)
    allowed = FACTOR * most
    if expected.dtype.itemsize == 1 and expected.dtype.kind in "iu":
        step = max(1.0, FACTOR * max(float(move.max()) for move in moves))
        allowed = max(allowed, _STEP_SHARE * expected.size)
        if (errors > step).any():
            return Allowance(errors > step, most / expected.size, True)
    beyond = np.count_nonzero(wrong) > allowed or np.count_nonzero(errors) > max(MOST * expected.size, 1.0)
    return Allowance(wrong if beyond else np.zeros_like(wrong), most / expected.size, bool(beyond))


def _too_far(errors: _Floats, moves: Sequence[_Floats], plain: _Floats) -> npt.NDArray[np.bool_]:
    """Where errors are larger than what is plainly allowed and what the moves around them allow."""
    with np.errstate(invalid="ignore"):
        too_far: npt.NDArray[np.bool_] = errors > plain + FACTOR * _around(np.maximum.reduce(moves))
    return too_far


def _around(farthest: _Floats) -> _Floats:
    """For each value, the largest along its line through the array, in the direction where that is smallest.

    A few samples say too little of one value; and an output may hold things of very different size side by side.
    """
    lines = [farthest.max(axis=axis, keepdims=True) for axis in range(farthest.ndim) if farthest.shape[axis] > 1]
    around = np.broadcast_to(np.asarray(farthest.max()), farthest.shape)
    for line in lines:
        around = np.minimum(around, line)
    return np.asarray(around)


def _apart(a: _Floats, b: _Floats) -> _Floats:
    """|a - b|; 0 where both are the same infinity or not a number, infinite where only one is."""
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart[np.isnan(apart)] = np.inf
    return apart


def _scale(values: _Floats) -> float:
    """The deviation of the finite values from their mean; their magnitude where there is only one."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0
    return float(finite.std()) or _root_mean_square(finite)


def _root_mean_square(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
