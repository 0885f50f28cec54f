"""How sure a mean difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

__all__ = ["Interval", "bootstrap"]

_DRAWS = 2000


class Interval(msgspec.Struct, frozen=True):
    """A mean, and the 95 % interval around it."""

    mean: float
    low: float
    high: float


def bootstrap(groups: Mapping[str, Sequence[float]], *, seed: int = 0) -> Interval | None:
    """The mean over groups of each group's mean, with the interval that redrawing groups and their values gives.

    Values of one group are not independent of each other, so whole groups are redrawn first, then values within them;
    with few groups the interval is wide, as it should be.  NaN counts as missing; None when nothing is left.
    """
    arrays = [np.array([v for v in values if not math.isnan(v)]) for values in groups.values()]
    arrays = [array for array in arrays if array.size]
    if not arrays:
        return None
    rng = np.random.default_rng(seed)
    drawn = np.empty((_DRAWS, len(arrays)))
    for slot in range(len(arrays)):
        chosen = rng.integers(len(arrays), size=_DRAWS)
        for index, array in enumerate(arrays):
            draws = np.flatnonzero(chosen == index)
            drawn[draws, slot] = array[rng.integers(array.size, size=(draws.size, array.size))].mean(axis=1)
    means = drawn.mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(np.mean([array.mean() for array in arrays])), float(low), float(high))
