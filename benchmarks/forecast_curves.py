"""How often the range held that a search foretells of its end, judged by the curves of recorded runs.

    python benchmarks/forecast_curves.py [--widths]

The runs are those in `notebook/results` that have a curve and a latency at the end: reports of `kintune tune`, the
methods of races that searched as it does, and `forecast_curves/runs.jsonl.gz`, which has what is needed of the reports
of comparisons.  All are in fp32, and none runs in onnxruntime.  Each run is stopped after its first minute, and after a
quarter, half and three quarters of its time, where these come later; what `kintune.tuning.end_forecast` foretells there
is held against the latency of the network at the end.  Runs whose search took less than a minute and a half are left
out.

The widths of the range were chosen by these runs.  So the table has a second judgement: for each network the widths are
taken from the runs of all other networks.  `--widths` prints the widths that all runs give.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.tuning.end_forecast import EARLIEST_S, WIDTHS, Widths, foretell_end, gains_so_far

__all__ = ["Moment", "Run", "main", "moments", "read_runs", "side", "widths_of"]

_RESULTS = Path(__file__).parents[1] / "notebook/results"
_SHARES = (0.0, 0.25, 0.5, 0.75)  # of the time of search; 0: after the first minute
_SHORTEST_S = 90.0
_BELOW, _ABOVE = 0.05, 0.08  # of the moments, whose estimate (latency) ends below (above) the range
_GAINED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_DOUBLING = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2)


class Run(NamedTuple):
    """A recorded run: its curve (seconds, trials, estimated ms), when its search ended, and the latency at the end."""

    source: str
    network: str
    curve: tuple[tuple[float, int, float], ...]
    ended_s: float
    network_ms: float


class Moment(NamedTuple):
    """A run stopped on the way: its curve until then, the time, what was left, and the latency at the end."""

    run: Run
    share: float
    curve: tuple[tuple[float, int, float], ...]
    now_s: float
    left_s: float

    @property
    def slower(self) -> float:
        """The logarithm of the latency at the end over the estimate of that moment."""
        return math.log(self.run.network_ms / self.curve[-1][2])

    @property
    def gained(self) -> float:
        """The logarithm of the estimate of that moment over the last one."""
        return math.log(self.curve[-1][2] / self.run.curve[-1][2])


def read_runs(results: Path = _RESULTS) -> list[Run]:
    """All recorded runs that were long enough."""
    runs = [*_reports(results), *_races(results), *_comparisons(results)]
    return [run for run in runs if len(run.curve) > 1 and run.ended_s - run.curve[0][0] >= _SHORTEST_S]


def _reports(results: Path) -> Iterator[Run]:
    for path in sorted(results.glob("*.json")):
        report = msgspec.json.decode(path.read_bytes())
        if not isinstance(report, dict) or "curve" not in report or not report.get("latency_ms", {}).get("tuned"):
            continue
        curve = tuple((float(seconds), int(trials), float(ms)) for seconds, trials, ms in report["curve"])
        yield Run(path.stem, _named(path.stem), curve, float(report["seconds"]), float(report["latency_ms"]["tuned"]))


def _named(stem: str) -> str:
    """The network in the name of a report, as `end-to-end-bert_base-10min-seed0-2026-11-22`."""
    return stem.removeprefix("end-to-end-").removeprefix("real-").removeprefix("gpu-").partition("-")[0]


def _races(results: Path) -> Iterator[Run]:
    for folder in sorted(path.parent for path in results.glob("*/curve.csv.gz")):
        own = {(row["cell"], row["method"]) for row in _rows(folder / "methods.csv") if row.get("tools") == "own"}
        ends = {(row["cell"], row["method"]): row for row in _rows(folder / "results.csv")}
        curves: dict[tuple[str, str], list[tuple[float, int, float]]] = {}
        for row in _rows(folder / "curve.csv.gz"):
            if row["estimate_ms"] and math.isfinite(float(row["estimate_ms"])):
                point = float(row["active_seconds"]), int(row["trials"]), float(row["estimate_ms"])
                curves.setdefault((row["cell"], row["method"]), []).append(point)
        for key, curve in curves.items():
            end = ends.get(key)
            if key not in own or end is None or not end["network_ms"]:
                continue
            network = end["model"].removeprefix("zoo:")
            yield Run(f"{folder.name}, {key[1]}", network, tuple(curve), curve[-1][0], float(end["network_ms"]))


def _comparisons(results: Path) -> Iterator[Run]:
    with gzip.open(results / "forecast_curves" / "runs.jsonl.gz") as file:
        for line in file:
            run = msgspec.json.decode(line)
            curve = tuple((float(seconds), int(trials), float(ms)) for seconds, trials, ms in run["curve"])
            source = f"{run['network']}, {run['minutes']:g} min"
            yield Run(source, run["network"], curve, float(run["seconds"]), float(run["tuned_ms"]))


def _rows(path: Path) -> Iterable[Mapping[str, str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", newline="") as file:
            return list(csv.DictReader(file))
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def moments(run: Run) -> Iterator[Moment]:
    """The run after its first minute, and after shares of its time that come later."""
    begun, ended = run.curve[0][0], run.ended_s
    for share in _SHARES:
        now = begun + (share * (ended - begun) if share else EARLIEST_S)
        if now - begun < EARLIEST_S or now >= ended:
            continue
        known = tuple(point for point in run.curve if point[0] <= now)
        yield Moment(run, share, known, now, ended - now)


def widths_of(judged: Sequence[Moment]) -> Widths:
    """The narrowest widths with which so many of the moments end below the range and above it as is allowed."""
    facts = [(*gains_so_far(each.curve, each.now_s, each.left_s), each) for each in judged]
    slower = sorted((each.slower for each in judged), reverse=True)[int(_ABOVE * len(judged))]
    most = int(_BELOW * len(judged))
    best: tuple[float, Widths] | None = None
    for gained, doubling in itertools.product(_GAINED, _DOUBLING):
        allowed = [(gained * gain + doubling) * doublings for gain, doublings, _ in facts]
        missed = sum(each.gained > most_gained for (_, _, each), most_gained in zip(facts, allowed, strict=True))
        if missed <= most and (best is None or statistics.mean(allowed) < best[0] - 1e-9):
            best = statistics.mean(allowed), Widths(gained, doubling, _up(slower))
    if best is None:
        raise ValueError("no widths are wide enough")
    return best[1]


def _up(width: float) -> float:
    return math.ceil(max(width, 0.0) * 100) / 100


def side(moment: Moment, widths: Widths) -> int:
    """0 where the latency at the end lay in the range, -1 where it was below, 1 where above."""
    found = foretell_end(moment.curve, moment.now_s, moment.left_s, widths=widths)
    if found is None:
        raise ValueError(f"{moment.run.source}: nothing is foretold after {moment.now_s:.0f} s")
    return (moment.run.network_ms > found.high_ms) - (moment.run.network_ms < found.low_ms)


def main(arguments: Sequence[str]) -> int:
    """Print the tables; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--widths", action="store_true", help="print the widths that all runs give, and no more")
    runs = read_runs()
    judged = [moment for run in runs for moment in moments(run)]
    if parser.parse_args(arguments).widths:
        print(widths_of(judged))
        return 0
    networks = sorted({run.network for run in runs})
    apart = {name: widths_of([each for each in judged if each.run.network != name]) for name in networks}
    print(f"{len(runs)} runs of {len(networks)} networks; {WIDTHS}\n")
    print("| after | runs | faster | within | slower | estimate below | within (widths of others) | range, middle |")
    print("|---|---|---|---|---|---|---|---|")
    for share in (*_SHARES, None):
        own = [each for each in judged if share is None or each.share == share]
        sides = [side(each, WIDTHS) for each in own]
        others = sum(side(each, apart[each.run.network]) == 0 for each in own)
        below = sum(_estimate_is_below(each) for each in own)
        print(
            f"| {_NAMES[share]} | {len(own)} | {sides.count(-1)} | {sides.count(0)} | {sides.count(1)} | {below} "
            f"| {others} | {_middle(own)} |"
        )
    told = [each for each in judged if _little_is_left(each)]
    few = [sum(math.expm1(each.gained) < most for each in told) for most in (0.05, 0.07)]
    print(f"\nLittle was left to gain at {len(told)} moments: {few[0]} gained less than 5 %, {few[1]} less than 7 %.")
    print("\n| run | foretold after the first minute, ms | estimate then | at the end |\n|---|---|---|---|")
    for each in judged:
        found = foretell_end(each.curve, each.now_s, each.left_s)
        if each.share == 0 and found is not None:
            reach = f"{found.low_ms:.3g} to {found.high_ms:.3g}"
            print(f"| {each.run.source} | {reach} | {each.curve[-1][2]:.3g} | {each.run.network_ms:.3g} |")
    return 0


_NAMES = {0.0: "the first minute", 0.25: "a quarter", 0.5: "half", 0.75: "three quarters", None: "all"}


def _little_is_left(moment: Moment) -> bool:
    """Whether the search would say so."""
    found = foretell_end(moment.curve, moment.now_s, moment.left_s)
    return found is not None and found.little_left


def _estimate_is_below(moment: Moment) -> bool:
    """Whether the last estimate of the run was below the range: the search gained more than was foretold."""
    found = foretell_end(moment.curve, moment.now_s, moment.left_s)
    return found is not None and moment.run.curve[-1][2] < found.low_ms


def _middle(judged: Sequence[Moment]) -> str:
    """The median range, in shares of the estimate of the moment."""
    found = [(each, foretell_end(each.curve, each.now_s, each.left_s)) for each in judged]
    low = statistics.median(told.low_ms / each.curve[-1][2] for each, told in found if told is not None)
    high = statistics.median(told.high_ms / each.curve[-1][2] for each, told in found if told is not None)
    return f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
