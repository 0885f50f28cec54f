"""Runs two tuning jobs at once on one machine under every policy; reports the duration and the quality of measurements.

    python benchmarks/live_schedules.py --repeats 3

The host has one core, the device another.  The networks are two small convolutional ones, unless `--models` names
others, searched in rounds of one subgraph each.  All setups measure the same candidates, selected by one earlier run,
each for about `--seconds`, so that the device has about as much work as the host.  The setups take turns, so that a
machine that slows down slows all of them.  `dedicated` is one job after the other, with nothing beside a measurement.
Nothing else should run meanwhile.  Raw results go to `notebook/results/`; `--show` only prints their table.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from live.followed_job import FOLLOW, SECONDS

from kintune.core.config import Options, Strategy
from kintune.core.messages import ItemStatus
from kintune.core.stage_results import Selected, StageName
from kintune.errors import KintuneError
from kintune.hardware.cores import physical_cores
from kintune.models.ref import parse_ref
from kintune.records import Store
from kintune.testing.small_onnx import write_small_onnx
from kintune.tuning.front.driver import Scheduling, tune_all
from kintune.tuning.front.request import TuneRequest
from kintune_lab.simulate.gantt import draw_gantt
from kintune_lab.simulate.metrics import metrics_of
from kintune_lab.simulate.recorded import read_recording, retrace

HERE = Path(__file__).parent
RESULTS = HERE.parent / "notebook/results"

TWO = {
    "dedicated": Scheduling("sequential", pipelined=False),
    "synchronous": Scheduling("synchronous", pipelined=False),
    "uncontrolled": Scheduling("uncontrolled", pipelined=False),
    "greedy": Scheduling("greedy", pipelined=False),
    "greedy, bundled": Scheduling("greedy", bundling=True, pipelined=False),
    "fair": Scheduling("fair", pipelined=False),
    "fair, bundled": Scheduling("fair", bundling=True, pipelined=False),
    "predictive": Scheduling("predictive", pipelined=False),
    "predictive, pipelined": Scheduling("predictive"),
}
Outcomes = dict[str, tuple[str, float, float | None]]
"""By candidate: the workload it is one of, microseconds at first, and those that count (confirmed, if it was)."""

ONE = {"one job": Scheduling("predictive", pipelined=False), "one job, pipelined": Scheduling("predictive")}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs=2, default=[])
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--round-size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--setups", nargs="+", choices=[*TWO, *ONE], default=[*TWO, *ONE])
    parser.add_argument("--output", default="live_schedules", help="a directory of the results")
    parser.add_argument("--append", action="store_true", help="measure more of what lies there")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.show:
        measure(options)
    place = RESULTS / options.output
    print("\n".join(summary(json.loads((place / "runs.json").read_text())["runs"], read_times(place))))


def measure(options: argparse.Namespace) -> None:
    """Run every setup in turn; what was measured is written after each."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    os.environ[SECONDS] = str(options.seconds)
    place = RESULTS / options.output
    place.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = json.loads((place / "runs.json").read_text())["runs"] if options.append else []
    measured = read_times(place) if options.append else {}
    first = 1 + max((run["repeat"] for run in runs), default=-1)
    with tempfile.TemporaryDirectory() as name:
        models = options.models or [str(write_small_onnx(Path(name, f"net{n}.onnx"), channels=n)) for n in (64, 96)]
        runner = LiveRunner(Path(name), place, models, options.trials, options.round_size)
        runner.record()
        for repeat in range(first, first + options.repeats):
            for label in options.setups:
                scheduling = {**TWO, **ONE}[label]
                name = f"{label}:{repeat}"
                run, measured[name] = runner.run(name, scheduling, models[:1] if label in ONE else models)
                runs.append({"setup": label, "repeat": repeat, **run})
                print(f"{label:22} {run['seconds']:6.1f} s  {run['over_bound']:.3f} of the bound", flush=True)
                write(options, place, runs, measured)


class LiveRunner:
    """Tunes the models by `tune_all` in a temporary directory."""

    def __init__(self, directory: Path, place: Path, models: Sequence[str], trials: int, round_size: int) -> None:
        self.directory = directory
        self.place = place
        self.models = models
        self.device = f"cpu:{physical_cores()[-1]}"
        strategy = Strategy(round_size=round_size, survey=(), foresee="none", budget="balanced")
        self.options = Options(trials=trials, strategy=strategy, compare=())
        self.follow = directory / "follow.msgpack"

    def record(self) -> None:
        """Select the candidates that all setups measure."""
        records = self.directory / "chosen.sqlite"
        self._tune(self.models, records, Scheduling("sequential", pipelined=False))
        chosen: dict[str, dict[int, Selected]] = {}
        with Store.open(str(records)) as store:
            for run in store.runs.list():
                events = store.events.history(run.run_id)
                selections = [
                    msgspec.msgpack.decode(event.payload, type=Selected)
                    for event in events
                    if event.kind == StageName.SELECT and event.status is ItemStatus.OK
                ]
                chosen[run.model_name] = {selected.round: selected for selected in selections}
        self.follow.write_bytes(msgspec.msgpack.encode(chosen))
        os.environ[FOLLOW] = str(self.follow)

    def run(self, name: str, scheduling: Scheduling, models: Sequence[str]) -> tuple[dict[str, Any], Outcomes]:
        """Tune the models on these candidates; returns figures and stage times, and the measurements."""
        records, log = self.directory / f"{name}.sqlite", self.directory / f"{name}.jsonl"
        followed = msgspec.structs.replace(scheduling, log=str(log), job_module="live.followed_job")
        self._tune(models, records, followed)
        recorded = read_recording(str(log))
        traced = retrace(recorded)
        accounts = metrics_of(traced.history, traced.jobs, recorded.resources, chains=False)
        picture = name.partition(":")[0].replace(",", "").replace(" ", "-")
        draw_gantt(name, traced.history, recorded.resources, self.place / f"{picture}.svg")
        with Store.open(str(records)) as store:
            outcomes: Outcomes = {
                m.candidate.digest: (m.candidate.workload, m.outcome.median_us, m.believed_us)
                for m in store.measurements.find()
                if m.outcome.ok
            }
        stages: dict[str, list[float]] = {}
        for span in traced.history.spans:
            stages.setdefault(span.kind, []).append(round(span.end - span.start, 3))
        figures: dict[str, Any] = {
            "seconds": accounts.makespan_s,
            "bound_s": accounts.bound_s,
            "over_bound": accounts.over_bound,
            "bound_by": accounts.bound_by,
            "use": accounts.use,
            "stages": stages,
        }
        return figures, outcomes

    def _tune(self, models: Sequence[str], records: Path, scheduling: Scheduling) -> None:
        requests = [
            TuneRequest(
                model=parse_ref(model),
                device=self.device,
                options=self.options,
                records=str(records),
                output=str(self.directory / f"{parse_ref(model).name}.kt"),
                fresh=True,
                log=str(self.directory / "run.log"),
            )
            for model in models
        ]
        for ending in tune_all(requests, scheduling):
            if isinstance(ending, KintuneError):
                raise ending


def summary(runs: Sequence[dict[str, Any]], measured: dict[str, Outcomes]) -> list[str]:
    """A line for each setup: medians over the repeats, and times and chosen programs against the dedicated runs.

    `of bound`: over the bound of its own stage times; `of calm`: over that of the undisturbed ones, those of the
    dedicated run of the same repeat (for one job: of itself, unpipelined).  `times`: the median candidate's time over
    that of the dedicated runs; `off by`: by how much the median candidate is off; `winners`: how much slower the chosen
    programs are than the best ones, summed over the subgraphs.  A program's true time is here the least of all runs,
    since disturbances only make it longer.  A figure whose dedicated run was not measured is nan.
    """
    by_setup: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_setup.setdefault(run["setup"], []).append(run)
    truth = times("dedicated" if "dedicated" in by_setup else "one job", measured)
    floor = least(measured)
    head = f"{'setup':22} {'seconds':>8} {'spread':>13} {'of bound':>8} {'of calm':>8} {'select':>7} {'build':>7}"
    lines = [f"{head} {'profile':>8} {'times':>6} {'off by':>7} {'winners':>8}"]
    for setup, mine in by_setup.items():
        calm = by_setup.get("one job" if setup in ONE else "dedicated", [])
        over_calm = median(a["seconds"] / b["bound_s"] for a, b in zip(mine, calm, strict=False))
        own = times(setup, measured)
        ratios = [own[digest][1] / truth[digest][1] for digest in own if digest in truth]
        off = median(abs(ratio - 1) for ratio in ratios)
        seconds = [run["seconds"] for run in mine]
        lines.append(
            f"{setup:22} {statistics.median(seconds):8.1f} {min(seconds):6.1f}-{max(seconds):6.1f} "
            f"{statistics.median(run['over_bound'] for run in mine):8.3f} {over_calm:8.3f} "
            f"{mean_stage(mine, 'select'):7.2f} {mean_stage(mine, 'build'):7.2f} {mean_stage(mine, 'profile'):8.2f} "
            f"{median(ratios):6.3f} {off:7.3f} {winners(setup, measured, floor):8.3f}"
        )
    return lines


def times(setup: str, measured: dict[str, Outcomes]) -> dict[str, tuple[str, float]]:
    """Each candidate's workload, and the median of its first times over the repeats of a setup."""
    found: dict[str, tuple[str, list[float]]] = {}
    for outcomes in of_setup(setup, measured):
        for digest, (workload, first_us, _) in outcomes.items():
            found.setdefault(digest, (workload, []))[1].append(first_us)
    return {digest: (workload, statistics.median(all_us)) for digest, (workload, all_us) in found.items()}


def least(measured: dict[str, Outcomes]) -> dict[str, tuple[str, float]]:
    """Each candidate's workload, and its least time in any run."""
    found: dict[str, tuple[str, float]] = {}
    for outcomes in measured.values():
        for digest, (workload, first_us, believed_us) in outcomes.items():
            time_us = first_us if believed_us is None else min(first_us, believed_us)
            found[digest] = (workload, min(time_us, found.get(digest, (workload, time_us))[1]))
    return found


def winners(setup: str, measured: dict[str, Outcomes], floor: dict[str, tuple[str, float]]) -> float:
    """The true times of the programs a run chose, over those of the best it measured: summed, for the median run."""
    ratios: list[float] = []
    for outcomes in of_setup(setup, measured):
        chosen: dict[str, tuple[float, str]] = {}
        best: dict[str, float] = {}
        for digest, (workload, _, believed_us) in outcomes.items():
            if believed_us is not None:
                chosen[workload] = min((believed_us, digest), chosen.get(workload, (believed_us, digest)))
                best[workload] = min(floor[digest][1], best.get(workload, floor[digest][1]))
        if chosen:
            ratios.append(sum(floor[digest][1] for _, digest in chosen.values()) / sum(best.values()))
    return median(ratios)


def median(values: Iterable[float]) -> float:
    """The median; nan of nothing."""
    return statistics.median(found) if (found := list(values)) else float("nan")


def of_setup(setup: str, measured: dict[str, Outcomes]) -> list[Outcomes]:
    """The measurements of each repeat of a setup."""
    return [outcomes for name, outcomes in measured.items() if name.partition(":")[0] == setup]


def mean_stage(runs: Sequence[dict[str, Any]], kind: str) -> float:
    """Mean seconds of a stage of this kind."""
    return statistics.fmean(second for run in runs for second in run["stages"].get(kind, [0.0]))


def write(
    options: argparse.Namespace, place: Path, runs: Sequence[dict[str, Any]], measured: dict[str, Outcomes]
) -> None:
    """Write everything measured so far: figures as JSON, the times of candidates as a table."""
    document = {"date": datetime.date.today().isoformat(), "options": vars(options), "runs": runs}
    (place / "runs.json").write_text(json.dumps(document, indent=1) + "\n")
    names = list(measured)
    workloads = {digest: workload for outcomes in measured.values() for digest, (workload, *_) in outcomes.items()}
    with (place / "times_us.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["candidate", "workload", *names])
        for digest, workload in workloads.items():
            cells = (measured[name].get(digest) for name in names)
            table.writerow([digest, workload, *map(cell_of, cells)])


def cell_of(times: tuple[str, float, float | None] | None) -> str:
    """The first time, and the final one if it differs."""
    if times is None:
        return ""
    _, first_us, believed_us = times
    return f"{first_us:.3f}" + ("" if believed_us is None else f" {believed_us:.3f}")


def read_times(place: Path) -> dict[str, Outcomes]:
    """Read the table of candidates' times, by run; the final times of some runs are unknown."""
    with (place / "times_us.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Outcomes] = {}
    for row in rows:
        for name, cell in row.items():
            if cell and name not in ("candidate", "workload"):
                first_us, *more = map(float, cell.split())
                found.setdefault(name, {})[row["candidate"]] = (row["workload"], first_us, more[0] if more else None)
    return found


if __name__ == "__main__":
    main()
