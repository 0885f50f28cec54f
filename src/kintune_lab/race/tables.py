"""A race as rows for people, notebooks and the report; see docs/design/race.md for the columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping

from kintune.core.candidate import Candidate
from kintune_lab.experiment.tables import Row, Tables
from kintune_lab.race.course import Course
from kintune_lab.race.judge import Judgement
from kintune_lab.race.networks import UNTUNED_NETWORK, NetworkTime
from kintune_lab.race.reckoning import RaceStanding, Reckoning

__all__ = ["AT_CROSSING", "AT_EQUAL_TIME", "FINAL", "network_name", "tables_of"]

FINAL, AT_EQUAL_TIME, AT_CROSSING = "final", "equal time", "crossing"
"""The moments of a side at which its network is compiled: at its end, within stock's seconds, as good as stock."""


def network_name(side: str, moment: str) -> str:
    """How the networks of a race are called."""
    return f"{side}: {moment}"


def tables_of(
    course: Course,
    judgements: Mapping[Candidate, Judgement],
    reckoning: Reckoning,
    networks: Mapping[str, NetworkTime],
    replayed: Mapping[Candidate, str],
    search_threads: int,
) -> Tables:
    """All tables of one race.

    `replayed` has the structural hash of each program as it was judged.
    """
    altered = _altered(course, replayed)
    stock = next(iter(course.tracks))
    return {
        "results": [
            _result(course, standing, reckoning, networks, stock, altered[side], search_threads)
            for side, standing in reckoning.standings.items()
        ],
        "curve": _curve(reckoning),
        "stages": _stages(course),
        "subgraphs": _subgraphs(course, judgements, reckoning),
        "judgements": _judgements(course, judgements, replayed),
        "failures": _failures(course),
        "reference": _reference(course),
        "networks": _networks(networks),
    }


def _result(
    course: Course,
    standing: RaceStanding,
    reckoning: Reckoning,
    networks: Mapping[str, NetworkTime],
    stock: str,
    altered: int,
    search_threads: int,
) -> Row:
    track = course.tracks[standing.side]
    last = standing.points[-1] if standing.points else None
    moment = FINAL if standing.side == stock else AT_EQUAL_TIME
    network = networks.get(network_name(standing.side, moment), NetworkTime())
    stock_ms = networks.get(network_name(stock, FINAL), NetworkTime()).median_ms
    failures = Counter(failure.status.value for turn in track.turns for failure in turn.failures)
    references = [turn.reference_us for turn in track.turns]
    return {
        "method": standing.side,
        "trials": track.trials,
        "failures": failures.total(),
        **{f"failures_{cause}": count for cause, count in sorted(failures.items())},
        "turns": len(track.turns),
        "finished": track.finished,
        "active_seconds": track.active_seconds,
        "prepare_seconds": track.prepare_seconds,
        "judged_ms": last.judged_ms if last else None,
        "equal_time_ms": standing.equal_time.judged_ms if standing.equal_time else None,
        "estimate_ms": last.estimate_ms if last else None,
        "untuned_ms": reckoning.untuned_ms,
        "reached": standing.reached,
        "seconds_to_quality": standing.crossing.active_seconds if standing.crossing else None,
        "trials_to_quality": standing.crossing.trials if standing.crossing else None,
        "time_ratio": standing.time_ratio if standing.reached else None,
        "time_ratio_at_most": standing.time_ratio,
        "quality_ratio": standing.quality_ratio,
        "network_ms": network.median_ms,
        "network_p10_ms": network.quantile_ms(0.1),
        "network_p90_ms": network.quantile_ms(0.9),
        "network_quality_ratio": stock_ms / network.median_ms if stock_ms and network.median_ms else None,
        "network_problem": network.problem or None,
        "rejected": standing.rejected,
        "altered": altered,
        "reference_us": statistics.median(references) if references else None,
        "reference_spread": max(references) / min(references) if references else None,
        "stock_tasks": course.ground.tasks,
        "stock_search_threads": search_threads,
    }


def _curve(reckoning: Reckoning) -> list[Row]:
    rows: list[Row] = []
    for side, standing in reckoning.standings.items():
        rows.append(
            {
                "method": side,
                "turn": -1,
                "active_seconds": 0.0,
                "trials": 0,
                "estimate_ms": reckoning.untuned_ms,
                "judged_ms": reckoning.untuned_ms,
            }
        )
        rows += [
            {
                "method": side,
                "turn": point.turn,
                "active_seconds": point.active_seconds,
                "trials": point.trials,
                "estimate_ms": point.estimate_ms,
                "judged_ms": point.judged_ms,
            }
            for point in standing.points
        ]
    return rows


def _stages(course: Course) -> list[Row]:
    return [
        {"method": side, "turn": turn.number, "stage": stage, "seconds": seconds}
        for side, track in course.tracks.items()
        for turn in track.turns
        for stage, seconds in turn.stages.items()
    ]


def _subgraphs(course: Course, judgements: Mapping[Candidate, Judgement], reckoning: Reckoning) -> list[Row]:
    """What each side spent on each subgraph, and what it had of it within stock's seconds."""
    rows: list[Row] = []
    for side, standing in reckoning.standings.items():
        trials: Counter[str] = Counter()
        estimates: dict[Candidate, float] = {}
        for turn in course.tracks[side].turns:
            trials.update(turn.measured)
            estimates.update((program.candidate, program.time_us) for program in turn.programs)
        point = standing.equal_time
        for subgraph in course.ground.subgraphs:
            untuned = Candidate.untuned(subgraph.workload)
            program = point.programs.get(subgraph.workload, untuned) if point else untuned
            rows.append(
                {
                    "method": side,
                    "workload": subgraph.workload,
                    "name": subgraph.name,
                    "operator": subgraph.operator,
                    "weight": subgraph.weight,
                    "flops": subgraph.flops,
                    "tunable": subgraph.tunable,
                    "trials": trials[subgraph.workload],
                    "untuned_us": judgements[untuned].median_us,
                    "estimate_us": estimates.get(program),
                    "judged_us": judgements[program].median_us,
                }
            )
    return rows


def _judgements(
    course: Course, judgements: Mapping[Candidate, Judgement], replayed: Mapping[Candidate, str]
) -> list[Row]:
    rows: list[Row] = []
    for side, track in course.tracks.items():
        for turn in track.turns:
            for program in turn.programs:
                judgement = judgements[program.candidate]
                passes = judgement.passes_us if judgement.ok else ()
                rows.append(
                    {
                        "method": side,
                        "turn": turn.number,
                        "workload": program.candidate.workload,
                        "candidate": program.candidate.digest,
                        "estimate_us": program.time_us,
                        "judged_us": judgement.median_us if passes else None,
                        "low_us": min(passes, default=None),
                        "high_us": max(passes, default=None),
                        "status": judgement.status.value,
                        "cause": judgement.cause or None,
                        "as_built": replayed.get(program.candidate) == program.structure,
                    }
                )
    return rows


def _failures(course: Course) -> list[Row]:
    """Every candidate that has no time, and why; stock's are not told apart."""
    return [
        {
            "method": side,
            "turn": turn.number,
            "workload": failure.workload,
            "status": failure.status.value,
            "cause": failure.cause or None,
            "sketch": failure.candidate.sketch if failure.candidate else None,
            "decisions": str([list(d) for d in failure.candidate.decisions]) if failure.candidate else None,
        }
        for side, track in course.tracks.items()
        for turn in track.turns
        for failure in turn.failures
    ]


def _reference(course: Course) -> list[Row]:
    turns = sorted((turn for track in course.tracks.values() for turn in track.turns), key=lambda turn: turn.order)
    return [
        {
            "method": turn.side,
            "turn": turn.number,
            "began_seconds": turn.began_s,
            "seconds": turn.seconds,
            "trials": turn.trials,
            "reference_us": turn.reference_us,
        }
        for turn in turns
    ]


def _networks(networks: Mapping[str, NetworkTime]) -> list[Row]:
    rows: list[Row] = []
    for name, taken in networks.items():
        side, _, moment = name.rpartition(": ")
        rows.append(
            {
                "method": side or UNTUNED_NETWORK,
                "moment": moment if side else None,
                "runs": len(taken.times_ms),
                "median_ms": taken.median_ms,
                "p10_ms": taken.quantile_ms(0.1),
                "p90_ms": taken.quantile_ms(0.9),
                "problem": taken.problem or None,
            }
        )
    return rows


def _altered(course: Course, replayed: Mapping[Candidate, str]) -> dict[str, int]:
    """How many incumbents of each side came out otherwise in the judge's hands than they were built."""
    return {
        side: sum(
            replayed.get(program.candidate) != program.structure for turn in track.turns for program in turn.programs
        )
        for side, track in course.tracks.items()
    }
