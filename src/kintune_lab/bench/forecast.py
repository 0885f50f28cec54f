"""How long the cells that are left will take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["seconds_left"]


def seconds_left(expected: Sequence[float | None], past: Sequence[tuple[float | None, float]]) -> float | None:
    """Seconds for the cells with these `expected` seconds (None: nobody can say), None when nothing is known.

    `past` has pairs of what was expected and what it took.  Expectations are corrected by how they held so far; a cell
    without one is taken to be like the median of the past.
    """
    if not expected:
        return 0.0
    ratios = [took / thought for thought, took in past if thought]
    correction = statistics.median(ratios) if ratios else 1.0
    typical = statistics.median(took for _, took in past) if past else None
    total = 0.0
    for thought in expected:
        if thought is not None:
            total += thought * correction
        elif typical is not None:
            total += typical
        else:
            return None
    return total
