"""The latency of an executable and its spread.  It does not import TVM."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.quantiles import quantile

__all__ = ["Evaluation"]


class Evaluation(msgspec.Struct, frozen=True):
    """Latencies of repeated runs in milliseconds: the median, the 10th and 90th percentile, and all of them in order.

    `spread` is (p90 - p10) / median: 0.02 is usual on an idle machine; at 0.2 the times cannot be relied on.
    """

    median_ms: float
    p10_ms: float
    p90_ms: float
    spread: float
    times_ms: tuple[float, ...]

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Evaluation:
        """Summarises at least one latency."""
        ordered = sorted(times_ms)
        p10, median, p90 = (quantile(ordered, q) for q in (0.1, 0.5, 0.9))
        return cls(median, p10, p90, (p90 - p10) / median if median else 0.0, tuple(times_ms))
