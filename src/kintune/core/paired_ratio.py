"""The ratio of two latencies that were timed in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["paired_ratio"]

_LEAST_MS = 1e-9  # of a round, so that nothing is divided by zero


def paired_ratio(ours_ms: Sequence[float], others_ms: Sequence[float]) -> float:
    """Return the median of the ratios of rounds.

    Both have one latency a round in milliseconds, in the order of the rounds.  The speed of a machine that others use
    changes from minute to minute, and less within a round: ratios of the medians of all runs lie up to twice as far
    apart (`benchmarks/paired_rounds.py`).

    Raises:
        ValueError: there is no round, or one has more rounds than the other.
    """
    if not ours_ms:
        raise ValueError("no round was timed")
    return statistics.median(ours / max(other, _LEAST_MS) for ours, other in zip(ours_ms, others_ms, strict=True))
