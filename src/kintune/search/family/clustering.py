"""Agglomerative clustering: the nearest two groups become one, again and again, as long as that is a gain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["clusters"]


def clusters(
    affinity: NDArray[np.float64], least: float, merges: Callable[[tuple[int, ...], tuple[int, ...]], bool]
) -> list[list[int]]:
    """Group the indices of `affinity`, a symmetric matrix of shape (n, n); each group in ascending order.

    Two groups are as near as their members are on average.  `merges` decides for the nearest two, then for the next,
    down to an affinity of `least`; groups that it kept apart are asked about again when one of them has grown.
    """
    groups: list[tuple[int, ...]] = [(i,) for i in range(len(affinity))]
    apart: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    while True:
        near = [
            (-float(affinity[np.ix_(left, right)].mean()), left, right)
            for at, left in enumerate(groups)
            for right in groups[at + 1 :]
            if (left, right) not in apart
        ]
        distance, left, right = min(near, default=(np.inf, (), ()))
        if -distance < least:
            return [list(group) for group in groups]
        if merges(left, right):
            groups = sorted([*(group for group in groups if group not in (left, right)), tuple(sorted(left + right))])
        else:
            apart.add((left, right))
