"""What tuning will likely reach, foretold before it begins: a range, from what was reached on this device before.

Arithmetic: programs of the same operator have reached some share of the device's peak in past runs, and those of a new
model will do about as well.  What moves data is foretold from its bytes.  Subgraphs that were measured themselves take
what they took.  Without past runs the shares are a first guess.  The range is as wide as it must be to hold in nine of
ten recorded cases (`benchmarks/forecast_check.py`).

A network that stays in the caches reads nothing from memory.  Its data come at the speed of the second-level cache,
which grows with the width of the vectors, as the peak does: half a vector for two multiply-adds are 0.5 bytes for a
FLOP.  The products of wake-word networks read 0.42 at their best on a Zen 5, where memory gives 0.11, and small ones
0.1.  So small kernels take their fixed costs: 0.03 to 0.15 us each; and a call of a network took 0.7 to 8 us more than
its kernels, which is 1 us and up to 0.25 for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kintune.core.device import Peak
from kintune.core.measurement_protocol import operands_for
from kintune.core.quantiles import quantile
from kintune.core.report import FastestBaseline
from kintune.core.workload import Subgraph
from kintune.records import MeasurementTally, WorkloadRecord

__all__ = ["Forecast", "Shares", "forecast", "shares_reached"]

_FIRST_GUESS = (0.35, 0.85)  # of the peak
_LEAST_FLOPS = 1e6  # of a run, below which a workload tells nothing of arithmetic
_LEAST_MEASURED = 16  # programs of a workload, below which it was not tuned
_LEAST_WORKLOADS = 3  # of an operator, below which all operators are taken together
_BETWEEN = (0.1, 0.9)  # quantiles of the shares
_FASTER = 0.75  # of the time at the high share: a new network may do better than those before it
_STILL_GAINED = 0.9  # of the time of a subgraph that was measured before
_SLOWEST_COPY = 3.0  # times as long as reading and writing its bytes
_CACHED = (0.6, 0.1)  # bytes for a FLOP of the peak that tuned kernels read from caches, at best and at worst
_SMALL_SHARE = 0.1  # of the peak that small kernels reach at least, if their data are in caches
_EACH_US = (0.03, 0.2)  # a kernel, however small
_CALL_US = (0.5, 2.0)  # a call of a network, besides its kernels
_AROUND = 1.32  # a network takes up to so much more than what its kernels are expected to take

Shares = Mapping[str, tuple[float, float]]
"""By operator the low and the high share of the peak that its programs reached; "" has that of all operators."""


class Forecast(msgspec.Struct, frozen=True):
    """The latency that tuning will likely reach lies between `low_ms` and `high_ms`.

    The range is derived from `judged_by` workloads that were tuned on this device before.  `baseline` is the fastest
    other runtime as it was timed now, None if none was; its slow runs took `spread` times as long as its fast ones (the
    90th percentile by the 10th).
    """

    low_ms: float
    high_ms: float
    judged_by: int
    baseline: FastestBaseline | None = None
    spread: float = 1.0

    @property
    def gains(self) -> tuple[float, float] | None:
        """How many times as fast as the baseline it will likely be, at least and at most."""
        if self.baseline is None or self.low_ms <= 0:
            return None
        return self.baseline.ms / self.high_ms, self.baseline.ms / self.low_ms


def shares_reached(
    workloads: Iterable[WorkloadRecord], tallies: Mapping[str, MeasurementTally], peak: Peak
) -> tuple[Shares, int]:
    """Returns the shares by operator, and from how many workloads they are; `tallies` are those of this device."""
    found: dict[str, list[float]] = {"": []}
    for workload in workloads:
        tally = tallies.get(workload.digest)
        if tally is None or tally.best_us is None or tally.measured < _LEAST_MEASURED or workload.flops < _LEAST_FLOPS:
            continue
        share = min(1.0, workload.flops / tally.best_us / 1e3 / peak.gflops)
        found.setdefault(workload.operator, []).append(share)
        found[""].append(share)
    shares = {}
    for operator, values in found.items():
        if len(values) >= _LEAST_WORKLOADS:
            values.sort()
            shares[operator] = quantile(values, _BETWEEN[0]), quantile(values, _BETWEEN[1])
    return shares, len(found[""])


def forecast(
    subgraphs: Sequence[Subgraph],
    tallies: Mapping[str, MeasurementTally],
    shares: Shares,
    judged_by: int,
    peak: Peak,
    cool_bytes: int = 0,
) -> Forecast:
    """Returns the forecast for a network of these subgraphs, without a baseline.

    `cool_bytes` are as in `DeviceDescription`.
    """
    low, high = _CALL_US
    moving = _from_caches if operands_for(subgraphs, cool_bytes) == "cool" else _through_memory
    for subgraph in subgraphs:
        least, most = _times_us(subgraph, tallies.get(subgraph.workload), shares, peak, moving)
        low += subgraph.weight * least
        high += subgraph.weight * most
    return Forecast(low / 1e3, _AROUND * high / 1e3, judged_by)


_Moving = Callable[[Subgraph, Peak], tuple[float, float]]
"""Returns the least and the longest time that a subgraph likely takes for its data, in microseconds."""


def _through_memory(subgraph: Subgraph, peak: Peak) -> tuple[float, float]:
    least = peak.least_us(0.0, subgraph.bytes)
    return least, _SLOWEST_COPY * least if subgraph.bound_flops < _LEAST_FLOPS else least


def _from_caches(subgraph: Subgraph, peak: Peak) -> tuple[float, float]:
    in_memory, slowest = _through_memory(subgraph, peak)
    least, most = (subgraph.bytes / peak.gflops / share / 1e3 for share in _CACHED)
    if not subgraph.tunable:
        most *= _SLOWEST_COPY
    most = min(slowest, most)
    if subgraph.bound_flops < _LEAST_FLOPS:
        most = max(most, subgraph.bound_flops / peak.gflops / _SMALL_SHARE / 1e3)
    return min(in_memory, least), most


def _times_us(
    subgraph: Subgraph, tally: MeasurementTally | None, shares: Shares, peak: Peak, moving: _Moving
) -> tuple[float, float]:
    """The least and the longest time of one run in microseconds that is likely."""
    if tally is not None and tally.best_us is not None and (tally.measured >= _LEAST_MEASURED or not subgraph.tunable):
        return _STILL_GAINED * tally.best_us, tally.best_us
    least, most = map(max, moving(subgraph, peak), _EACH_US)
    if subgraph.bound_flops < _LEAST_FLOPS:
        return least, most
    low, high = shares.get(subgraph.operator) or shares.get("") or _FIRST_GUESS
    arithmetic = subgraph.bound_flops / peak.gflops / 1e3
    return max(least, _FASTER * arithmetic / high), max(most, subgraph.flops / peak.gflops / 1e3 / low)
