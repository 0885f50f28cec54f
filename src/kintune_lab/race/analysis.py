"""Latency curves and ratios of a race, from its record and the re-measurements.  Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import msgspec

from kintune.core.candidate import Candidate
from kintune.errors import KintuneError
from kintune_lab.race.remeasurement import Remeasurement
from kintune_lab.race.turn_scheduler import RaceRecord, TunerRecord

__all__ = ["LatencyPoint", "RaceAnalysis", "TunerResult", "analyse"]


class LatencyPoint(msgspec.Struct, frozen=True):
    """A tuner's latency at the end of a turn.

    `remeasured_ms` is the network's latency by the re-measured times of its best programs, `estimate_ms` by its own
    times; a workload without a program counts with its untuned one.  `programs` are the accepted best programs.
    """

    turn: int
    active_seconds: float
    trials: int
    estimate_ms: float
    remeasured_ms: float
    programs: dict[str, Candidate]


class TunerResult(msgspec.Struct, frozen=True):
    """The result of one tuner against stock.

    `crossing` is the first point that is as good as stock's final one, `equal_time` the last within stock's seconds;
    None when there is none.  `time_ratio` is stock's total seconds over those at the crossing; without a crossing, over
    all that it spent, which is what it could be at most.  `quality_ratio` is stock's final latency over that at
    `equal_time`.  `rejected` counts the best programs that failed re-measurement.
    """

    tuner: str
    points: tuple[LatencyPoint, ...]
    crossing: LatencyPoint | None
    equal_time: LatencyPoint | None
    time_ratio: float
    quality_ratio: float
    rejected: int

    @property
    def reached(self) -> bool:
        """Whether it got as good as stock in the end."""
        return self.crossing is not None


class RaceAnalysis(msgspec.Struct, frozen=True):
    """The results of all tuners, stock first, and the re-measured latency of the untuned network."""

    results: dict[str, TunerResult]
    untuned_ms: float


def analyse(record: RaceRecord, remeasurements: Mapping[Candidate, Remeasurement]) -> RaceAnalysis:
    """Compute the curves and ratios of all tuners from the re-measured times.

    Raises:
        KintuneError: an untuned program was rejected, or stock ended without an accepted program.

    """
    for subgraph in record.network.subgraphs:
        untuned_program = remeasurements[Candidate.untuned(subgraph.workload)]
        if not untuned_program.ok:
            cause = untuned_program.cause or untuned_program.status.value
            raise KintuneError(
                f"the untuned program of {subgraph.name}, which all are compared with, did not count with the judge: "
                f"{cause}"
            )
    found = {tuner: _points(record, track, remeasurements) for tuner, track in record.tracks.items()}
    stock = next(iter(record.tracks.values()))
    stock_points, rejected = found[stock.tuner]
    if not stock_points or not stock_points[-1].programs:
        failures = Counter(failure.status.value for turn in stock.turns for failure in turn.failures)
        causes = ", ".join(f"{count} {cause}" for cause, count in failures.most_common()) or "none failed"
        raise KintuneError(
            f"{stock.tuner} found nothing to compare with: of {stock.trials} programs measured {causes}, "
            f"{rejected} did not count with the judge"
        )
    final_ms = stock_points[-1].remeasured_ms
    results = {
        tuner: _result_of(record.tracks[tuner], points, not_counted, stock.active_seconds, final_ms)
        for tuner, (points, not_counted) in found.items()
    }
    untuned = sum(s.weight * remeasurements[Candidate.untuned(s.workload)].median_us for s in record.network.subgraphs)
    return RaceAnalysis(results, untuned / 1e3)


def _points(
    record: RaceRecord, track: TunerRecord, remeasurements: Mapping[Candidate, Remeasurement]
) -> tuple[tuple[LatencyPoint, ...], int]:
    """The points of a tuner, and the number of its rejected programs, which leave their predecessors in place."""
    subgraphs = record.network.subgraphs
    times = {s.workload: remeasurements[Candidate.untuned(s.workload)].median_us for s in subgraphs}
    estimates = dict(times)
    programs: dict[str, Candidate] = {}
    points: list[LatencyPoint] = []
    rejected: set[Candidate] = set()
    trials = 0
    for turn in track.turns:
        trials += turn.trials
        for program in turn.programs:
            remeasurement = remeasurements[program.candidate]
            if remeasurement.ok:
                workload = program.candidate.workload
                times[workload], estimates[workload] = remeasurement.median_us, program.time_us
                programs[workload] = program.candidate
            else:
                rejected.add(program.candidate)
        points.append(
            LatencyPoint(
                turn=turn.number,
                active_seconds=turn.active_seconds,
                trials=trials,
                estimate_ms=sum(s.weight * estimates[s.workload] for s in subgraphs) / 1e3,
                remeasured_ms=sum(s.weight * times[s.workload] for s in subgraphs) / 1e3,
                programs=dict(programs),
            )
        )
    return tuple(points), len(rejected)


def _result_of(
    track: TunerRecord, points: tuple[LatencyPoint, ...], rejected: int, stock_seconds: float, final_ms: float
) -> TunerResult:
    crossing = next((point for point in points if point.remeasured_ms <= final_ms), None)
    within = [point for point in points if point.active_seconds <= stock_seconds]
    equal_time = within[-1] if within else None
    reached_s = crossing.active_seconds if crossing else track.active_seconds
    return TunerResult(
        tuner=track.tuner,
        points=points,
        crossing=crossing,
        equal_time=equal_time,
        time_ratio=stock_seconds / reached_s if reached_s > 0 else math.nan,
        quality_ratio=final_ms / equal_time.remeasured_ms if equal_time else math.nan,
        rejected=rejected,
    )
