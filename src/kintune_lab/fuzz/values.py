"""Draws arrays for leaves of a drawn graph: ordinary values, and extremes of their type, by the role that they play."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kintune.core.model import Tensor
from kintune.runtime.extreme_inputs import extreme_inputs

__all__ = [
    "ALL",
    "ANY",
    "BYTES",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "POSITIVE",
    "Array",
    "LeafRole",
    "draw_extreme",
    "draw_ordinary",
    "is_large",
]

Array = NDArray[Any]

FLOATS = ("float32", "float16", "float64")
BYTES = ("int8", "uint8")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")

NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")


class LeafRole(msgspec.Struct, frozen=True):
    """What a leaf may hold: values in [`low`, `high`]; None: any value of the type.

    `sorted_` leaves hold each value at most once along the last axis, in ascending order.
    """

    low: float | None = None
    high: float | None = None
    sorted_: bool = False


_WIDE = 4  # bytes of an integer whose products are expected not to overflow
_EQUAL = 0.1

ANY = LeafRole()
POSITIVE = LeafRole(0.05, 2.0)


def draw_ordinary(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], role: LeafRole = ANY) -> Array:
    """Values of moderate size that differ from each other."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if role.low is not None and role.high is not None:
        if kind.kind == "f":
            return np.asarray(rng.uniform(role.low, role.high, shape)).astype(kind)
        return _ordered(np.asarray(rng.integers(int(role.low), int(role.high) + 1, shape)).astype(kind), role)
    if kind.kind == "f":
        equal = rng.random() < _EQUAL  # integers, some of which are equal
        return np.asarray(rng.integers(-4, 5, shape) if equal else rng.standard_normal(shape)).astype(kind)
    low, high = (0, 9) if kind.kind == "u" else (-9, 9)
    if kind.itemsize == 1:
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    return np.asarray(rng.integers(low, high + 1, shape)).astype(kind)


def draw_extreme(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], role: LeafRole = ANY) -> Array:
    """Values of one of the sets of `extreme_inputs`; ordinary ones for floats of a range, and where order counts."""
    drawn, kind = draw_ordinary(rng, dtype, shape, role), np.dtype(dtype)
    ranged = role.low is not None and role.high is not None
    if role.sorted_ or (ranged and kind.kind == "f"):
        return drawn
    values = "bytes" if kind.kind in "iu" and kind.itemsize < _WIDE else ""
    sets = extreme_inputs([Tensor("x", shape, dtype, _bounds(kind, role), values)], given={"x": drawn})
    return sets[int(rng.integers(0, len(sets)))].arrays["x"] if sets else drawn


def _bounds(kind: np.dtype[Any], role: LeafRole) -> tuple[int, int] | None:
    """The least and greatest integer: of wide types those whose square the type holds, since sums of more overflow."""
    if role.low is not None and role.high is not None:
        return int(role.low), int(role.high)
    if kind.kind not in "iu" or kind.itemsize < _WIDE:
        return None
    high = 1 << 4 * kind.itemsize - 2
    return -high - 1 if kind.kind == "i" else 0, high


def is_large(values: Array) -> Array:
    """Where floats are finite, and so large that products and sums of a few may not be."""
    return np.asarray(np.isfinite(values) & (np.abs(values) > float(np.finfo(values.dtype).max) ** 0.75))


def _ordered(values: Array, role: LeafRole) -> Array:
    return np.sort(values, axis=-1) if role.sorted_ and values.ndim else values
