"""The product of lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

__all__ = ["product_of", "size_of"]

T = TypeVar("T")


def product_of(axes: Mapping[str, Sequence[T]]) -> Iterator[dict[str, T]]:
    """Every choice of one value from each axis; the last axis varies fastest."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def size_of(axes: Mapping[str, Sequence[object]]) -> int:
    """How many choices `product_of` yields."""
    return math.prod(len(values) for values in axes.values())
