"""From turns and judgements to the curves and ratios that a race is about.  Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import msgspec

from kintune.core.candidate import Candidate
from kintune.errors import KintuneError
from kintune_lab.race.course import Course, Track
from kintune_lab.race.judge import Judgement

__all__ = ["CurvePointReached", "RaceStanding", "Reckoning", "reckon"]


class CurvePointReached(msgspec.Struct, frozen=True):
    """Where a side stood at the end of a turn.

    `judged_ms` is the network's latency by the judge's times of the incumbents, `estimate_ms` by the side's own; a
    workload without an incumbent has its untuned program, in both.  `programs` are the incumbents that count.
    """

    turn: int
    active_seconds: float
    trials: int
    estimate_ms: float
    judged_ms: float
    programs: dict[str, Candidate]


class RaceStanding(msgspec.Struct, frozen=True):
    """How one side did against stock.

    `crossing` is the first point that is as good as stock's final one, `equal_time` the last within stock's seconds;
    None when there is none.  `time_ratio` is stock's total seconds over those at the crossing; without a crossing, over
    all that it spent, which is what it could be at most.  `quality_ratio` is stock's final latency over that at
    `equal_time`.  `rejected` counts the incumbents that the judge did not let count.
    """

    side: str
    points: tuple[CurvePointReached, ...]
    crossing: CurvePointReached | None
    equal_time: CurvePointReached | None
    time_ratio: float
    quality_ratio: float
    rejected: int

    @property
    def reached(self) -> bool:
        """Whether it got as good as stock in the end."""
        return self.crossing is not None


class Reckoning(msgspec.Struct, frozen=True):
    """All sides, stock first, and the network's judged latency when nothing is tuned."""

    standings: dict[str, RaceStanding]
    untuned_ms: float


def reckon(course: Course, judgements: Mapping[Candidate, Judgement]) -> Reckoning:
    """Judge all sides of a race by the same times.

    Raises KintuneError when an untuned program does not count, since it stands wherever nothing was found, or when
    stock ended without a program that counts: there is nothing to compare with then.
    """
    for subgraph in course.ground.subgraphs:
        untuned_program = judgements[Candidate.untuned(subgraph.workload)]
        if not untuned_program.ok:
            cause = untuned_program.cause or untuned_program.status.value
            raise KintuneError(
                f"the untuned program of {subgraph.name}, which all are compared with, did not count with the judge: "
                f"{cause}"
            )
    found = {side: _points(course, track, judgements) for side, track in course.tracks.items()}
    stock = next(iter(course.tracks.values()))
    stock_points, rejected = found[stock.side]
    if not stock_points or not stock_points[-1].programs:
        failures = Counter(failure.status.value for turn in stock.turns for failure in turn.failures)
        causes = ", ".join(f"{count} {cause}" for cause, count in failures.most_common()) or "none failed"
        raise KintuneError(
            f"{stock.side} found nothing to compare with: of {stock.trials} programs measured {causes}, "
            f"{rejected} did not count with the judge"
        )
    final_ms = stock_points[-1].judged_ms
    standings = {
        side: _standing(course.tracks[side], points, not_counted, stock.active_seconds, final_ms)
        for side, (points, not_counted) in found.items()
    }
    untuned = sum(s.weight * judgements[Candidate.untuned(s.workload)].median_us for s in course.ground.subgraphs)
    return Reckoning(standings, untuned / 1e3)


def _points(
    course: Course, track: Track, judgements: Mapping[Candidate, Judgement]
) -> tuple[tuple[CurvePointReached, ...], int]:
    """The points of a side, and how many of its incumbents do not count: those leave their predecessors in place."""
    subgraphs = course.ground.subgraphs
    judged = {s.workload: judgements[Candidate.untuned(s.workload)].median_us for s in subgraphs}
    estimates = dict(judged)
    programs: dict[str, Candidate] = {}
    points: list[CurvePointReached] = []
    rejected: set[Candidate] = set()
    trials = 0
    for turn in track.turns:
        trials += turn.trials
        for program in turn.programs:
            judgement = judgements[program.candidate]
            if judgement.ok:
                workload = program.candidate.workload
                judged[workload], estimates[workload] = judgement.median_us, program.time_us
                programs[workload] = program.candidate
            else:
                rejected.add(program.candidate)
        points.append(
            CurvePointReached(
                turn=turn.number,
                active_seconds=turn.active_seconds,
                trials=trials,
                estimate_ms=sum(s.weight * estimates[s.workload] for s in subgraphs) / 1e3,
                judged_ms=sum(s.weight * judged[s.workload] for s in subgraphs) / 1e3,
                programs=dict(programs),
            )
        )
    return tuple(points), len(rejected)


def _standing(
    track: Track, points: tuple[CurvePointReached, ...], rejected: int, stock_seconds: float, final_ms: float
) -> RaceStanding:
    crossing = next((point for point in points if point.judged_ms <= final_ms), None)
    within = [point for point in points if point.active_seconds <= stock_seconds]
    equal_time = within[-1] if within else None
    reached_s = crossing.active_seconds if crossing else track.active_seconds
    return RaceStanding(
        side=track.side,
        points=points,
        crossing=crossing,
        equal_time=equal_time,
        time_ratio=stock_seconds / reached_s if reached_s > 0 else math.nan,
        quality_ratio=final_ms / equal_time.judged_ms if equal_time else math.nan,
        rejected=rejected,
    )
