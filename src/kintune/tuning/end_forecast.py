"""What a search will likely reach at its end, foretold while it runs, from its own curve so far.

What a search gains in a doubling of its time becomes less from one doubling to the next.  So what it gained in the last
one, and how many doublings are left, bound what is still to be gained: that is the lower end of the range.  Its upper
end is above the estimate: a network takes longer than the sum of its kernels, the fastest of many timed programs was
lucky, and the machine may be busier at the end.  How wide the range must be was found with recorded runs
(`benchmarks/forecast_curves.py`).  Nothing is below what the arithmetic takes at the machine's peak.  A forecast is
only shown: no decision depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kintune.core.device import Peak
from kintune.core.report import LatencyForecast
from kintune.core.workload import Subgraph

__all__ = ["EARLIEST_S", "WIDTHS", "Curve", "Widths", "foretell_end", "gains_so_far", "least_ms"]

EARLIEST_S = 60.0
"""Seconds of search before which nothing is foretold."""

_LITTLE = 0.02  # gained in the last doubling, times the doublings to come: less than that is little
_MOST_GAIN = math.log(2.0)  # the gain of the last doubling counts as no more: the first programs gain far more, once

Curve = Sequence[tuple[float, int, float]]
"""Rows of (seconds, trials, estimated latency in ms), one for each change of the estimate."""


class Widths(NamedTuple):
    """How wide the range is, as logarithms of latencies over the estimate.

    Below the estimate, each doubling of time to come widens it by `gained` times the gain of the last doubling, plus
    `doubling`.  Above the estimate it reaches by `slower`.
    """

    gained: float
    doubling: float
    slower: float


WIDTHS = Widths(0.6, 0.06, 0.53)
"""Widths with which the range held in nine of ten recorded runs."""


def gains_so_far(curve: Curve, now_s: float, left_s: float) -> tuple[float, float]:
    """The logarithm of the gain in the last doubling of the time of search, and how many doublings are to come."""
    begun, _, first_ms = curve[0]
    spent = max(now_s - begun, 1e-9)
    at_half = next((ms for seconds, _, ms in reversed(curve) if seconds <= begun + spent / 2), first_ms)
    gain = max(0.0, math.log(at_half / curve[-1][2]))
    return min(gain, _MOST_GAIN), math.log2(1.0 + max(left_s, 0.0) / spent)


def foretell_end(
    curve: Curve, now_s: float, left_s: float, floor_ms: float = 0.0, widths: Widths = WIDTHS
) -> LatencyForecast | None:
    """The latency that the network will likely have; None in the first minute of the search, or without an estimate.

    `curve` has what was estimated until `now_s`; the search goes on for about `left_s` seconds.  `floor_ms` is what the
    network takes at least.
    """
    if not curve or now_s - curve[0][0] < EARLIEST_S or curve[-1][2] <= 0:
        return None
    gain, doublings = gains_so_far(curve, now_s, left_s)
    estimate_ms = curve[-1][2]
    low_ms = max(floor_ms, estimate_ms * math.exp(-(widths.gained * gain + widths.doubling) * doublings))
    high_ms = max(low_ms, estimate_ms * math.exp(widths.slower))
    return LatencyForecast(low_ms, high_ms, little_left=gain * doublings < _LITTLE)


def least_ms(subgraphs: Sequence[Subgraph], peak: Peak) -> float:
    """What a network of these subgraphs takes at least: its arithmetic at the device's peak."""
    return sum(each.weight * peak.least_us(each.bound_flops, 0.0, each.narrowest) for each in subgraphs) / 1e3
