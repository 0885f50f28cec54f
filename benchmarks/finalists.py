"""Compares ways to choose one of a search's fastest programs: how many are timed again, and how.

    python benchmarks/finalists.py zoo:mobilenet_v2 zoo:mobilenet_v2_0.5 --minutes 1.5 4
    python benchmarks/finalists.py --replay notebook/results/finalists.json.gz

Each network is tuned cold.  The eight fastest programs of each of its heaviest subgraphs are built again and timed in
turns, in sixteen rounds of fifteen repeats.  The median over the rounds is taken as the true time.  Then ways to choose
are replayed with these times, starting at each round: a number of finalists in the order of the search, and a number of
repeats in each of a number of heats.  The results are how much slower the chosen program is than the truly fastest of
the eight, and how often finalists are timed.  They go to `notebook/results/finalists.json`.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from in_turns import REPEATS, in_turns

from kintune.hardware.cpu import inspect_machine
from kintune.records import Measurement

RESULTS = Path(__file__).parents[1] / "notebook/results" / "finalists.json"
MOST = 8
ROUNDS = 16
NEAR = 1.1  # a slower program is no finalist beyond the third, as in a job

Times = Sequence[Sequence[Sequence[float]]]  # by program, fastest of the search first, by round, by repeat


class Way(NamedTuple):
    """A number of finalists, and of repeats of each in a heat.

    In the first heat all of them run; in each further one, those within a factor of the fastest so far.
    """

    finalists: int
    repeats: int
    further: tuple[float, ...] = ()


WAYS = (
    Way(1, 0), Way(3, 15), Way(8, 5), Way(8, 15), Way(3, 5, (1.05, 1.03)), Way(8, 5, (1.05,)), Way(8, 5, (1.05, 1.03)),
)  # fmt: skip


def fastest(measured: Sequence[Measurement]) -> list[Measurement]:
    """The `MOST` fastest programs by the search's own times."""
    return sorted(measured, key=lambda m: m.outcome.median_us)[:MOST]


def choices(way: Way, search_us: Sequence[float], times: Times) -> Iterator[tuple[int, int]]:
    """The rank of the chosen program and the number of timings, starting at each round and repeat."""
    places = [p for p in range(min(way.finalists, len(times))) if p < 3 or search_us[p] <= NEAR * search_us[0]]
    for start in range(len(times[0]) - len(way.further)):
        for offset in range(0, REPEATS - way.repeats + 1, 5):
            yield _played(way, places, times, start, offset)


def _played(way: Way, places: Sequence[int], times: Times, start: int, offset: int) -> tuple[int, int]:
    if way.repeats == 0:
        return places[0], 0
    taken: dict[int, list[float]] = {place: [] for place in places}
    running, timed = list(places), 0
    for heat, margin in enumerate((math.inf, *way.further)):
        if heat:
            medians = {place: statistics.median(taken[place]) for place in running}
            running = [place for place in running if medians[place] <= margin * min(medians.values())]
        if len(running) == 1:
            break
        for place in running:
            taken[place] += times[place][start + heat][offset : offset + way.repeats]
            timed += 1
    return min(running, key=lambda place: statistics.median(taken[place])), timed


def examine(model: str, minutes: float, subgraphs: int) -> list[dict[str, Any]]:
    """The raw times, one entry for each subgraph."""
    return [
        {
            "model": model,
            "minutes": minutes,
            "subgraph": timed.name,
            "search_us": [round(m.outcome.median_us, 2) for m in timed.programs],
            "times_us": [[[round(t, 2) for t in repeats] for repeats in found] for found in timed.times_us],
        }
        for timed in in_turns(model, minutes, subgraphs, ROUNDS, fastest)
    ]


def replay(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each way chooses, averaged over all subgraphs."""
    found = []
    for way in WAYS:
        excess: list[float] = []
        visits: list[int] = []
        for row in rows:
            times = row["times_us"]
            truth = [statistics.median(statistics.median(repeats) for repeats in program) for program in times]
            for place, timed in choices(way, row["search_us"], times):
                excess.append(truth[place] / min(truth) - 1)
                visits.append(timed)
        found.append(_summary(way, excess, visits))
    return found


def _summary(way: Way, excess: Sequence[float], visits: Sequence[int]) -> dict[str, Any]:
    ranked = sorted(excess)
    return {
        "finalists": way.finalists,
        "repeats": way.repeats,
        "further_heats": way.further,
        "slower_percent": round(100 * statistics.fmean(excess), 2),
        "slower_percent_p95": round(100 * ranked[int(0.95 * (len(ranked) - 1))], 2),
        "beyond_2_percent": round(sum(e > 0.02 for e in excess) / len(excess), 3),
        "timed": round(statistics.fmean(visits), 1),
    }


def main() -> None:
    """All models, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--minutes", type=float, nargs="+", default=[2.0], help="for all, or one for each")
    parser.add_argument("--subgraphs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--replay", type=Path, help="the raw times of an earlier run")
    options = parser.parse_args()
    if options.replay:
        packed = options.replay.read_bytes()
        rows = json.loads(gzip.decompress(packed) if options.replay.suffix == ".gz" else packed)["rows"]
    else:
        minutes = options.minutes * len(options.models) if len(options.minutes) == 1 else options.minutes
        if not options.models or len(minutes) != len(options.models):
            parser.error("name networks, and minutes for all or for each of them; or --replay what was timed")
        rows = []
        for model, limit in zip(options.models, minutes, strict=True):
            rows += examine(model, limit, options.subgraphs)
    ways = replay(rows)
    for way in ways:
        print("  " + ", ".join(f"{key} {value}" for key, value in way.items()))
    if not options.replay:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        document = {"date": today, "cpu": inspect_machine().cpu, "ways": ways, "rows": rows}
        options.out.write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
