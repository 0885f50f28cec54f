"""What a search will likely reach at its end, foretold while it runs, from its own curve so far.

What a search gains in a doubling of its time becomes less from one doubling to the next.  What it gained in the last
one, and how many doublings are left, tell about what is still to be gained.  How far that was off in recorded runs
gives the range (`benchmarks/forecast_curves.py`).  Nothing is below what the arithmetic takes at the machine's peak.
It is only shown: no decision depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kintune.core.device import Peak
from kintune.core.report import LatencyForecast
from kintune.core.workload import Subgraph

__all__ = ["EARLIEST_S", "foretell_end", "gains_so_far", "least_ms"]

EARLIEST_S = 60.0
"""Seconds of search before which nothing is foretold."""

Curve = Sequence[tuple[float, int, float]]
"""Rows of (seconds, trials, estimated latency in ms), one for each change of the estimate."""


def gains_so_far(curve: Curve, now_s: float, left_s: float) -> tuple[float, float]:
    """The logarithm of the gain in the last doubling of the time of search, and how many doublings are still to come."""
    begun, _, first_ms = curve[0]
    spent = max(now_s - begun, 1e-9)
    at_half = next((ms for seconds, _, ms in reversed(curve) if seconds <= begun + spent / 2), first_ms)
    return math.log(at_half / curve[-1][2]), math.log2(1.0 + max(left_s, 0.0) / spent)


def foretell_end(curve: Curve, now_s: float, left_s: float, floor_ms: float = 0.0) -> LatencyForecast | None:
    """The latency that the network will likely have; None in the first minute of the search.

    `curve` has what was estimated until `now_s`; the search goes on for about `left_s` seconds.  `floor_ms` is what the
    network takes at least.
    """
    if not curve or now_s - curve[0][0] < EARLIEST_S or curve[-1][2] <= 0:
        return None
    gain, doublings = gains_so_far(curve, now_s, left_s)
    return LatencyForecast(floor_ms, curve[-1][2] * math.exp(gain * doublings))


def least_ms(subgraphs: Sequence[Subgraph], peak: Peak) -> float:
    """What a network of these subgraphs takes at least: its arithmetic at the device's peak."""
    return sum(each.weight * peak.least_us(each.bound_flops, 0.0) for each in subgraphs) / 1e3
