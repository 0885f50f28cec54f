"""Integer weights in the range that instructions take, or in parts whose sums of products float32 holds exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kintune.compiler.graph.quantised_operands import Numbers
from kintune.compiler.graph.rewriting import along

__all__ = ["EXACT", "LARGEST_BYTE", "SignedWeights", "exact_digits", "inside_of", "shaped", "signed_weights"]

LARGEST_BYTE = 255
"""The largest size of a byte, and of a byte less a zero point of its type."""

EXACT = 1 << 24
"""All whole numbers up to this one are exact in float32."""

_LEAST, _MOST = -128, 127
_DIGITS = (4, 3, 2)  # bits


class SignedWeights(NamedTuple):
    """Weights that are `integers + moved`: signed bytes, and a number, or one for each element of `axis`."""

    integers: Numbers
    moved: Numbers
    axis: int


def signed_weights(weights: Numbers, axis: int) -> SignedWeights | None:
    """The weights moved by as little as makes them signed bytes; None where they have more than 256 values.

    They are all moved by one number, or, where that cannot be, each element of `axis` by its own.
    """
    others = tuple(place for place in range(weights.ndim) if place != axis)
    for summed in (None, others):
        least, most = weights.min(summed, initial=0), weights.max(summed, initial=0)
        moved = np.where(least < _LEAST, least - _LEAST, np.where(most > _MOST, most - _MOST, 0))
        stored = weights - shaped(moved, axis, weights.ndim)
        if stored.min(initial=0) >= _LEAST and stored.max(initial=0) <= _MOST:
            return SignedWeights(stored, moved, axis)
    return None


def exact_digits(weights: Numbers, axes: tuple[int, ...]) -> list[tuple[int, Numbers]] | None:
    """Parts of the weights with a factor each, which add up to them.

    Float32 holds the sums along `axes` of the products of a part and bytes, less a zero point or not.  One part
    suffices where it holds those of the weights.  Otherwise parts are digits between `-base / 2` and `base / 2`.
    Returns None where no such digits are small enough.
    """
    if _is_exact(weights, axes):
        return [(1, weights)]
    for bits in _DIGITS:
        base, rest = 1 << bits, weights.astype(np.int64)
        found: list[tuple[int, Numbers]] = []
        while np.abs(rest).max() > base // 2:
            digit = (rest + base // 2) % base - base // 2
            found.append((base ** len(found), digit))
            rest = (rest - digit) // base
        found.append((base ** len(found), rest))
        if all(_is_exact(digit, axes) for _, digit in found):
            return found
    return None


def _is_exact(weights: Numbers, axes: tuple[int, ...]) -> bool:
    return LARGEST_BYTE * int(np.abs(weights.astype(np.int64)).sum(axes).max(initial=0)) < EXACT


def shaped(values: Numbers, axis: int, rank: int) -> Numbers:
    """One value for each element of `axis`, shaped to broadcast with a tensor of `rank`; one number stays a scalar."""
    return along(values, axis, rank) if values.ndim else values


def inside_of(widths: Sequence[tuple[int, int]], shape: Sequence[int]) -> Numbers:
    """Where a tensor of `shape` lies after it was padded with these widths; of one element in axes without padding."""
    padded = [
        front + extent + behind if front or behind else 1 for (front, behind), extent in zip(widths, shape, strict=True)
    ]
    inside = np.zeros(padded, bool)
    inside[tuple(slice(front, front + extent) for (front, _), extent in zip(widths, shape, strict=True))] = True
    return inside
