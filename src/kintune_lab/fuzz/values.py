"""Draws arrays for leaves of a drawn graph: ordinary values, and extremes of their type, by the role that they play."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALL",
    "ANY",
    "BYTES",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "POSITIVE",
    "Array",
    "Role",
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


class Role(msgspec.Struct, frozen=True):
    """What a leaf may hold: values in [`low`, `high`]; None: any value of the type.

    `sorted_` leaves hold each value at most once along the last axis, in ascending order.
    """

    low: float | None = None
    high: float | None = None
    sorted_: bool = False


ANY = Role()
POSITIVE = Role(0.05, 2.0)


def draw_ordinary(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], role: Role = ANY) -> Array:
    """Values of moderate size that differ from each other."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if role.low is not None and role.high is not None:
        if kind.kind == "f":
            return np.asarray(rng.uniform(role.low, role.high, shape)).astype(kind)
        return _ordered(np.asarray(rng.integers(int(role.low), int(role.high) + 1, shape)).astype(kind), role)
    if kind.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(kind)
    low, high = (0, 9) if kind.kind == "u" else (-9, 9)
    if kind.itemsize == 1:
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    return np.asarray(rng.integers(low, high + 1, shape)).astype(kind)


def draw_extreme(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], role: Role = ANY) -> Array:
    """Values that data has and a normal distribution has not: all equal, limits of the type, one NaN, denormals."""
    kind = np.dtype(dtype)
    values = draw_ordinary(rng, dtype, shape, role)
    if kind.kind == "b":
        return np.full(shape, bool(rng.integers(0, 2)))
    if role.low is not None and role.high is not None:
        ends = np.array([role.low, role.high]).astype(kind)
        chosen = int(rng.integers(0, 3))
        filled = np.full(shape, ends[chosen]) if chosen < 2 else np.asarray(rng.choice(ends, shape), kind)
        return values if role.sorted_ else filled
    if kind.kind != "f":
        limits = np.iinfo(kind)
        high = int(limits.max) if kind.itemsize < 4 else 1 << 4 * kind.itemsize - 2  # the square of which has the type
        low = max(int(limits.min), -high - 1)
        chosen = int(rng.integers(0, 4))
        if chosen < 3:
            return np.full(shape, (0, high, low)[chosen], kind)
        return np.asarray(rng.choice(np.array([low, high, 0, 1], kind), shape))
    limits_ = np.finfo(kind)
    with np.errstate(all="ignore"):
        match int(rng.integers(0, 9)):
            case 0:
                return np.zeros(shape, kind)
            case 1:
                return np.full(shape, rng.standard_normal()).astype(kind)
            case 2:
                return (values.astype(np.float64) * 1e4).astype(kind)
            case 3:
                return np.asarray(rng.integers(-4, 5, shape)).astype(kind)
            case 4:
                return (values.astype(np.float64) * float(limits_.smallest_subnormal) * 64).astype(kind)
            case 5:
                return np.full(shape, -np.inf, kind)
            case chosen:
                if values.size:
                    special = (np.nan, np.inf, limits_.max, -np.inf)[int(rng.integers(0, 4)) if chosen > 6 else 2]
                    values.flat[int(rng.integers(0, values.size))] = special
                return values


def is_large(values: Array) -> Array:
    """Where floats are finite, and so large that products and sums of a few may not be."""
    return np.asarray(np.isfinite(values) & (np.abs(values) > float(np.finfo(values.dtype).max) ** 0.75))


def _ordered(values: Array, role: Role) -> Array:
    return np.sort(values, axis=-1) if role.sorted_ and values.ndim else values
