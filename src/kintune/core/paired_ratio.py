"""The ratio of two latencies that were timed in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["paired_ratio"]

_LEAST_MS = 1e-9  # of a round, so that nothing is divided by zero


def paired_ratio(ours_ms: Sequence[float], others_ms: Sequence[float]) -> float:
    """Return the median over the rounds of our latency divided by the other one.

    Both have one latency a round in milliseconds, in the order of the rounds.  The speed of a machine that others use
    changes from minute to minute, and less within a round.  So the ratio of the two medians of all runs varies up to
    twice as much (`benchmarks/paired_rounds.py`).

    Raises:
        ValueError: there is no round, or one has more rounds than the other.
    """
    if not ours_ms:
        raise ValueError("no round was timed")
    return statistics.median(ours / max(other, _LEAST_MS) for ours, other in zip(ours_ms, others_ms, strict=True))
