"""How well the range held that `kintune estimate` foretells, judged by records of comparisons that are kept here.

    python benchmarks/forecast_check.py [RUN]...

Each RUN is a comparison with measurements in `notebook/records`; by default, those that tuned in fp32 alone.  The
records of one comparison teach what shares of the peak are reached, as in `kintune.tuning.forecast`.  From these the
times of the subgraphs that another comparison tuned are foretold, by their operators and FLOPs alone; what both have is
left out, and what both measured counts for the earlier one.
The table says how many times lay in the range, and how the sum of all times compares with the sum of the ranges.

The records do not say which network a subgraph belongs to, nor what its bytes are.  So a second table judges networks
by what `notebook/results/forecast_curves/runs.jsonl.gz` keeps of the reports of comparisons: the operators, FLOPs and
best times of their subgraphs, and the latency of the network at the end.  What has hardly any arithmetic counts with
its best time.  Records of a comparison in which the network was tuned itself are left out; so are networks of which
a tenth or more is of operators that the teacher has not tuned.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.device import Peak
from kintune.core.workload import Subgraph
from kintune.records import MeasurementTally, WorkloadRecord
from kintune.records.portable import MeasurementContent, WorkloadContent
from kintune.tuning.forecast import Forecast, forecast, shares_reached
from kintune_lab.corpus import read_corpus

__all__ = ["Judged", "Network", "Taught", "judge", "judge_network", "main", "read_networks", "read_records"]

_PEAK = Peak(355.0, 7.6, 2, 8.5)  # of the machine that made the records; it counts only where a share would exceed 1
_LEAST_MEASURED, _LEAST_FLOPS = 16, 1e6  # as in `kintune.tuning.forecast`: what counts as tuned
_UNKNOWN = 0.1  # of the FLOPs of a network, in operators that the teacher has not tuned
_RECORDS, _RESULTS = (Path(__file__).parents[1] / "notebook" / name for name in ("records", "results"))
_IN_FP32 = ("eight", "eleven", "programs", "seven")


class Taught(NamedTuple):
    """What the records of a comparison hold: its subgraphs, and what each has reached, by digest."""

    workloads: dict[str, WorkloadRecord]
    tallies: dict[str, MeasurementTally]

    @property
    def tuned(self) -> list[WorkloadRecord]:
        """The subgraphs with some arithmetic of which enough programs were measured."""
        return [
            each
            for digest, each in self.workloads.items()
            if (tally := self.tallies.get(digest)) is not None
            and tally.best_us is not None
            and tally.measured >= _LEAST_MEASURED
            and each.flops >= _LEAST_FLOPS
        ]


class Judged(NamedTuple):
    """How ranges held: of so many `subgraphs` so many were faster, within, and slower; sums in milliseconds."""

    subgraphs: int
    faster: int
    within: int
    slower: int
    low_ms: float
    high_ms: float
    reached_ms: float


def read_records(run: str, folder: Path = _RECORDS) -> Taught:
    """The records of a comparison, of all CPUs."""
    workloads: dict[str, WorkloadRecord] = {}
    times: dict[str, list[float]] = {}
    measured: dict[str, int] = {}
    for content in itertools.chain.from_iterable(read_corpus(path, run=run) for path in sorted(folder.iterdir())):
        match content:
            case WorkloadContent(digest=digest) as of:
                workloads[digest] = WorkloadRecord(digest, of.name, of.operator, of.signature, of.flops, "")
            case MeasurementContent(measurement=made):
                digest, outcome = made.candidate.workload, made.outcome
                measured[digest] = measured.get(digest, 0) + 1
                if outcome.ok:
                    times.setdefault(digest, []).append(outcome.median_us)
    tallies = {}
    for digest, count in measured.items():
        own = times.get(digest, [])
        tallies[digest] = MeasurementTally(digest, "", "", count, len(own), min(own, default=None))
    return Taught(workloads, tallies)


def judge(teacher: Taught, other: Taught) -> Judged:
    """Foretells the times of what the other has tuned from what the teacher has reached."""
    shares, _ = shares_reached(teacher.workloads.values(), teacher.tallies, _PEAK)
    faster = within = slower = 0
    low = high = reached = 0.0
    for each in other.tuned:
        if each.digest in teacher.workloads:
            continue
        subgraph = Subgraph(each.name, each.digest, 1, each.flops, each.operator, each.signature, True)
        foretold = forecast([subgraph], {}, shares, 0, _PEAK)
        best_ms = (other.tallies[each.digest].best_us or 0.0) / 1e3
        faster += best_ms < foretold.low_ms
        slower += best_ms > foretold.high_ms
        within += foretold.low_ms <= best_ms <= foretold.high_ms
        low, high, reached = low + foretold.low_ms, high + foretold.high_ms, reached + best_ms
    return Judged(faster + within + slower, faster, within, slower, low, high, reached)


class Network(NamedTuple):
    """A network that was tuned: its subgraphs, the best times of those with hardly any arithmetic, and its latency."""

    name: str
    subgraphs: list[Subgraph]
    tallies: dict[str, MeasurementTally]
    network_ms: float


def read_networks(folder: Path = _RESULTS) -> list[Network]:
    """The networks of comparisons."""
    found = []
    with gzip.open(folder / "forecast_curves" / "runs.jsonl.gz") as file:
        for line in file:
            run = msgspec.json.decode(line)
            subgraphs, tallies = [], {}
            for number, (operator, weight, flops, best_us) in enumerate(run["subgraphs"]):
                digest, small = f"{run['network']} {number}", flops < _LEAST_FLOPS
                subgraphs.append(Subgraph(digest, digest, weight, flops, operator, operator, not small))
                if small:
                    tallies[digest] = MeasurementTally(digest, "", "", 1, 1, best_us)
            found.append(Network(run["network"], subgraphs, tallies, run["tuned_ms"]))
    return found


def judge_network(teacher: Taught, network: Network) -> Forecast | None:
    """What is foretold of the network; None where the teacher knows too little of its operators."""
    shares, judged_by = shares_reached(teacher.workloads.values(), teacher.tallies, _PEAK)
    flops = {each.operator: 0.0 for each in network.subgraphs}
    for each in network.subgraphs:
        flops[each.operator] += each.weight * each.flops
    unknown = sum(amount for operator, amount in flops.items() if operator not in shares)
    if unknown > _UNKNOWN * sum(flops.values()):
        return None
    return forecast(network.subgraphs, network.tallies, shares, judged_by, _PEAK)


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("runs", nargs="*")
    runs = parser.parse_args(arguments).runs or [f"compare-{name}-xeon-2026-11-26" for name in _IN_FP32]
    taught = {run: read_records(run) for run in runs}
    networks = read_networks()
    print("| taught by | foretold | subgraphs | faster | within | slower | range, ms | reached, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for teacher, known in taught.items():
        for name, other in taught.items():
            if name == teacher or not known.tuned or not (found := judge(known, other)).subgraphs:
                continue
            held = f"{found.low_ms:.2f} to {found.high_ms:.2f}"
            print(
                f"| {_short(teacher)} | {_short(name)} | {found.subgraphs} | {found.faster} | {found.within} "
                f"| {found.slower} | {held} | {found.reached_ms:.2f} |"
            )
    print("\n| taught by | foretold | range, ms | reached, ms | is |\n|---|---|---|---|---|")
    lay: list[bool] = []
    for teacher, known in taught.items():
        tuned_itself = _networks_of(teacher)
        for network in networks:
            if network.name in tuned_itself or (told := judge_network(known, network)) is None:
                continue
            place = (network.network_ms > told.high_ms) - (network.network_ms < told.low_ms)
            lay.append(place == 0)
            print(
                f"| {_short(teacher)} | {network.name} | {told.low_ms:.3g} to {told.high_ms:.3g} "
                f"| {network.network_ms:.3g} | {('within', 'slower', 'faster')[place]} |"
            )
    print(f"\n{sum(lay)} of {len(lay)} networks lay in the range.")
    return 0


def _networks_of(run: str) -> set[str]:
    """The networks that a comparison has tuned."""
    compared = msgspec.json.decode((_RESULTS / run / "comparison.json").read_bytes())["comparisons"]
    return {name.removeprefix("zoo:") for each in compared for name in each["files"]}


def _short(name: str) -> str:
    return name.removeprefix("compare-").partition("-xeon")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
