"""A race as rows for people, notebooks and the report; see docs/design/race.md for the columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping

from kintune.core.candidate import Candidate
from kintune_lab.experiment.tables import Row, Tables
from kintune_lab.race.analysis import RaceAnalysis, TunerResult
from kintune_lab.race.networks import UNTUNED_NETWORK, NetworkTime
from kintune_lab.race.remeasurement import Remeasurement
from kintune_lab.race.turn_scheduler import RaceRecord

__all__ = ["AT_CROSSING", "AT_EQUAL_TIME", "FINAL", "network_name", "tables_of"]

FINAL, AT_EQUAL_TIME, AT_CROSSING = "final", "equal time", "crossing"
"""When a tuner's network is compiled: at its end, at stock's total seconds, and when it became as good as stock."""


def network_name(tuner: str, moment: str) -> str:
    """Returns the name of a tuner's network in the tables."""
    return f"{tuner}: {moment}"


def tables_of(
    record: RaceRecord,
    remeasurements: Mapping[Candidate, Remeasurement],
    analysis: RaceAnalysis,
    networks: Mapping[str, NetworkTime],
    replayed: Mapping[Candidate, str],
    search_threads: int,
) -> Tables:
    """All tables of one race.

    `replayed` has the structural hash of each program as it was re-measured.
    """
    altered = _altered(record, replayed)
    stock = next(iter(record.tracks))
    return {
        "results": [
            _result(record, result, analysis, networks, stock, altered[tuner], search_threads)
            for tuner, result in analysis.results.items()
        ],
        "curve": _curve(analysis),
        "stages": _stages(record),
        "subgraphs": _subgraphs(record, remeasurements, analysis),
        "judgements": _remeasurement_rows(record, remeasurements, replayed),
        "failures": _failures(record),
        "reference": _reference(record),
        "networks": _networks(networks),
    }


def _result(
    record: RaceRecord,
    result: TunerResult,
    analysis: RaceAnalysis,
    networks: Mapping[str, NetworkTime],
    stock: str,
    altered: int,
    search_threads: int,
) -> Row:
    track = record.tracks[result.tuner]
    last = result.points[-1] if result.points else None
    moment = FINAL if result.tuner == stock else AT_EQUAL_TIME
    network = networks.get(network_name(result.tuner, moment), NetworkTime())
    stock_ms = networks.get(network_name(stock, FINAL), NetworkTime()).median_ms
    failures = Counter(failure.status.value for turn in track.turns for failure in turn.failures)
    references = [turn.reference_us for turn in track.turns]
    return {
        "method": result.tuner,
        "trials": track.trials,
        "failures": failures.total(),
        **{f"failures_{cause}": count for cause, count in sorted(failures.items())},
        "turns": len(track.turns),
        "finished": track.finished,
        "active_seconds": track.active_seconds,
        "prepare_seconds": track.prepare_seconds,
        "judged_ms": last.remeasured_ms if last else None,
        "equal_time_ms": result.equal_time.remeasured_ms if result.equal_time else None,
        "estimate_ms": last.estimate_ms if last else None,
        "untuned_ms": analysis.untuned_ms,
        "reached": result.reached,
        "seconds_to_quality": result.crossing.active_seconds if result.crossing else None,
        "trials_to_quality": result.crossing.trials if result.crossing else None,
        "time_ratio": result.time_ratio if result.reached else None,
        "time_ratio_at_most": result.time_ratio,
        "quality_ratio": result.quality_ratio,
        "network_ms": network.median_ms,
        "network_p10_ms": network.quantile_ms(0.1),
        "network_p90_ms": network.quantile_ms(0.9),
        "network_quality_ratio": stock_ms / network.median_ms if stock_ms and network.median_ms else None,
        "network_problem": network.problem or None,
        "rejected": result.rejected,
        "altered": altered,
        "reference_us": statistics.median(references) if references else None,
        "reference_spread": max(references) / min(references) if references else None,
        "stock_tasks": record.network.tasks,
        "stock_search_threads": search_threads,
    }


def _curve(analysis: RaceAnalysis) -> list[Row]:
    rows: list[Row] = []
    for tuner, result in analysis.results.items():
        rows.append(
            {
                "method": tuner,
                "turn": -1,
                "active_seconds": 0.0,
                "trials": 0,
                "estimate_ms": analysis.untuned_ms,
                "judged_ms": analysis.untuned_ms,
            }
        )
        rows += [
            {
                "method": tuner,
                "turn": point.turn,
                "active_seconds": point.active_seconds,
                "trials": point.trials,
                "estimate_ms": point.estimate_ms,
                "judged_ms": point.remeasured_ms,
            }
            for point in result.points
        ]
    return rows


def _stages(record: RaceRecord) -> list[Row]:
    return [
        {"method": tuner, "turn": turn.number, "stage": stage, "seconds": seconds}
        for tuner, track in record.tracks.items()
        for turn in track.turns
        for stage, seconds in turn.stages.items()
    ]


def _subgraphs(
    record: RaceRecord, remeasurements: Mapping[Candidate, Remeasurement], analysis: RaceAnalysis
) -> list[Row]:
    """The trials of each tuner on each subgraph, and its best program within stock's seconds."""
    rows: list[Row] = []
    for tuner, result in analysis.results.items():
        trials: Counter[str] = Counter()
        estimates: dict[Candidate, float] = {}
        for turn in record.tracks[tuner].turns:
            trials.update(turn.measured)
            estimates.update((program.candidate, program.time_us) for program in turn.programs)
        point = result.equal_time
        for subgraph in record.network.subgraphs:
            untuned = Candidate.untuned(subgraph.workload)
            program = point.programs.get(subgraph.workload, untuned) if point else untuned
            rows.append(
                {
                    "method": tuner,
                    "workload": subgraph.workload,
                    "name": subgraph.name,
                    "operator": subgraph.operator,
                    "weight": subgraph.weight,
                    "flops": subgraph.flops,
                    "tunable": subgraph.tunable,
                    "trials": trials[subgraph.workload],
                    "untuned_us": remeasurements[untuned].median_us,
                    "estimate_us": estimates.get(program),
                    "judged_us": remeasurements[program].median_us,
                }
            )
    return rows


def _remeasurement_rows(
    record: RaceRecord, remeasurements: Mapping[Candidate, Remeasurement], replayed: Mapping[Candidate, str]
) -> list[Row]:
    rows: list[Row] = []
    for tuner, track in record.tracks.items():
        for turn in track.turns:
            for program in turn.programs:
                remeasurement = remeasurements[program.candidate]
                passes = remeasurement.passes_us if remeasurement.ok else ()
                rows.append(
                    {
                        "method": tuner,
                        "turn": turn.number,
                        "workload": program.candidate.workload,
                        "candidate": program.candidate.digest,
                        "estimate_us": program.time_us,
                        "judged_us": remeasurement.median_us if passes else None,
                        "low_us": min(passes, default=None),
                        "high_us": max(passes, default=None),
                        "status": remeasurement.status.value,
                        "cause": remeasurement.cause or None,
                        "as_built": replayed.get(program.candidate) == program.structure,
                    }
                )
    return rows


def _failures(record: RaceRecord) -> list[Row]:
    """Returns a row for each candidate without a time, with the cause; stock's are named by workload alone."""
    return [
        {
            "method": tuner,
            "turn": turn.number,
            "workload": failure.workload,
            "status": failure.status.value,
            "cause": failure.cause or None,
            "sketch": failure.candidate.sketch if failure.candidate else None,
            "decisions": str([list(d) for d in failure.candidate.decisions]) if failure.candidate else None,
        }
        for tuner, track in record.tracks.items()
        for turn in track.turns
        for failure in turn.failures
    ]


def _reference(record: RaceRecord) -> list[Row]:
    turns = sorted((turn for track in record.tracks.values() for turn in track.turns), key=lambda turn: turn.order)
    return [
        {
            "method": turn.tuner,
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
        tuner, _, moment = name.rpartition(": ")
        rows.append(
            {
                "method": tuner or UNTUNED_NETWORK,
                "moment": moment if tuner else None,
                "runs": len(taken.times_ms),
                "median_ms": taken.median_ms,
                "p10_ms": taken.quantile_ms(0.1),
                "p90_ms": taken.quantile_ms(0.9),
                "problem": taken.problem or None,
            }
        )
    return rows


def _altered(record: RaceRecord, replayed: Mapping[Candidate, str]) -> dict[str, int]:
    """How many best programs of each tuner differ from what the tuner built, when they are replayed."""
    return {
        tuner: sum(
            replayed.get(program.candidate) != program.structure for turn in track.turns for program in turn.programs
        )
        for tuner, track in record.tracks.items()
    }
