"""How well scores rank measured candidates of one subgraph.

Times within `RESOLUTION` of each other count as equal, since another measurement may reverse their order.  A failed
candidate has an infinite time: slower than any that ran, and equal to that of another failed one.  Where scores are
equal, the result is the mean over all orders that they allow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["RESOLUTION", "best_of", "pair_accuracy", "recall"]

RESOLUTION = 0.02
"""The share by which times must differ to count as different: about the spread of two timings of one program."""

_Scores = NDArray[np.float32]
_Times = NDArray[np.float64]


def pair_accuracy(scores: _Scores, times_us: _Times) -> tuple[float, int]:
    """Return the share of pairs of different times that the scores order rightly, and the number of such pairs.

    Both arrays have shape (n,).  Equal scores count one half.  The share is NaN when all times are equal.
    """
    order = np.argsort(times_us, kind="stable")
    times, ranked = times_us[order], scores[order]
    first, second = np.triu_indices(len(times), k=1)
    different = times[first] * (1 + RESOLUTION) < times[second]
    pairs = int(different.sum())
    if not pairs:
        return float("nan"), 0
    gap = ranked[first[different]] - ranked[second[different]]
    return float((gap > 0).mean() + 0.5 * (gap == 0).mean()), pairs


def recall(scores: _Scores, times_us: _Times, k: int) -> float:
    """Return the share of the `k` fastest candidates that is among the `k` with the highest scores.

    Failed candidates are never among the fastest; NaN when fewer than `k` ran.
    """
    if np.isfinite(times_us).sum() < k:
        return float("nan")
    fastest = np.argsort(times_us, kind="stable")[:k]
    bound = np.sort(scores)[::-1][k - 1]
    above, at = scores > bound, scores == bound
    share = (k - above.sum()) / at.sum()
    return float((above[fastest].sum() + share * at[fastest].sum()) / k)


def best_of(scores: _Scores, times_us: _Times, k: int) -> float:
    """Return the fastest time over the fastest among the `k` highest scores: 1.0 when the best is among them.

    Of equal scores, the first ones count; 0.0 when all of the `k` failed; NaN when no candidate ran.
    """
    best = float(times_us.min(initial=np.inf))
    if not np.isfinite(best):
        return float("nan")
    return best / float(times_us[np.argsort(-scores, kind="stable")[:k]].min())
