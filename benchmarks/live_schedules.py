"""Two tuning jobs at once on one machine, under every policy: how long it takes, and what becomes of the measurements.

    python benchmarks/live_schedules.py --repeats 3

The host has one core, the device another.  All setups measure the same candidates, which one run has selected before;
they take turns, so that a machine that gets slower slows all of them.  `dedicated` is one job after the other with
nothing beside a measurement.  While it runs, nothing else should.  Raw results go to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from live.followed_job import FOLLOW

from kintune.errors import KintuneError
from kintune.front.campaign import Scheduling, tune_all
from kintune.front.request import TuneRequest
from kintune.job.payloads import Options, Selected, StageName
from kintune.measure.cores import physical_cores
from kintune.models.ref import parse_ref
from kintune.records import Store
from kintune.search.strategy import Strategy
from kintune.simulate.accounts import accounts_of
from kintune.simulate.gantt import draw_gantt
from kintune.simulate.recorded import read_recording
from kintune.simulate.retrace import retrace
from kintune.wire.messages import ItemStatus

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "live_schedules"

TWO = {
    "dedicated": Scheduling("sequential", pipelined=False),
    "synchronous": Scheduling("synchronous", pipelined=False),
    "uncontrolled": Scheduling("uncontrolled", pipelined=False),
    "greedy": Scheduling("greedy", pipelined=False),
    "fair": Scheduling("fair", pipelined=False),
    "fair, bundled": Scheduling("fair", bundling=True, pipelined=False),
    "predictive": Scheduling("predictive", pipelined=False),
    "predictive, pipelined": Scheduling("predictive"),
}
ONE = {"one job": Scheduling("predictive", pipelined=False), "one job, pipelined": Scheduling("predictive")}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs=2, default=["zoo:mobilenet_v1_0.5", "zoo:mobilenet_v2_0.5"])
    parser.add_argument("--trials", type=int, default=192)
    parser.add_argument("--round-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.models, options.trials, options.round_size)
        bench.record()
        runs: list[dict[str, Any]] = []
        for repeat in range(options.repeats):
            for label, scheduling in {**TWO, **ONE}.items():
                run = bench.run(f"{label}-{repeat}", scheduling, options.models[:1] if label in ONE else options.models)
                runs.append({"setup": label, "repeat": repeat, **run})
                print(f"{label:22} {run['seconds']:6.1f} s  {run['over_bound']:.3f} of the bound", flush=True)
                write(options, runs)
    print("\n".join(summary(runs)))


class Bench:
    """Runs campaigns in a directory that is thrown away."""

    def __init__(self, directory: Path, models: Sequence[str], trials: int, round_size: int) -> None:
        self.directory = directory
        self.models = models
        self.device = f"cpu:{physical_cores()[-1]}"
        self.options = Options(trials=trials, strategy=Strategy(round_size=round_size), compare=())
        self.follow = directory / "follow.msgpack"

    def record(self) -> None:
        """Choose the candidates that all setups measure."""
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

    def run(self, name: str, scheduling: Scheduling, models: Sequence[str]) -> dict[str, Any]:
        """One campaign on these candidates: its figures, stage times and what was measured."""
        records, log = self.directory / f"{name}.sqlite", self.directory / f"{name}.jsonl"
        followed = msgspec.structs.replace(scheduling, log=str(log), job_module="live.followed_job")
        self._tune(models, records, followed)
        recorded = read_recording(str(log))
        traced = retrace(recorded)
        accounts = accounts_of(traced.story, traced.jobs, recorded.resources, chains=False)
        draw_gantt(name, traced.story, recorded.resources, RESULTS / f"{name.rsplit('-', 1)[0].replace(', ', '-')}.svg")
        with Store.open(str(records)) as store:
            outcomes = {
                m.candidate.digest: (m.candidate.workload, m.outcome.median_us)
                for m in store.measurements.find()
                if m.outcome.ok
            }
        stages: dict[str, list[float]] = {}
        for span in traced.story.spans:
            stages.setdefault(span.kind, []).append(round(span.end - span.start, 3))
        return {
            "seconds": accounts.makespan_s,
            "bound_s": accounts.bound_s,
            "over_bound": accounts.over_bound,
            "bound_by": accounts.bound_by,
            "use": accounts.use,
            "stages": stages,
            "outcomes": outcomes,
        }

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


def summary(runs: Sequence[dict[str, Any]]) -> list[str]:
    """A line a setup: medians over the repeats, and what became of times and winners against the dedicated runs."""
    by_setup: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_setup.setdefault(run["setup"], []).append(run)
    truth = times(by_setup["dedicated"])
    lines = [f"{'setup':22} {'seconds':>8} {'of bound':>8} {'update':>7} {'profile':>8} {'times':>6} {'winners':>8}"]
    for setup, mine in by_setup.items():
        own = times(mine)
        common = [digest for digest in own if digest in truth]
        ratio = statistics.median(own[digest][1] / truth[digest][1] for digest in common)
        lines.append(
            f"{setup:22} {median(mine, 'seconds'):8.1f} {median(mine, 'over_bound'):8.3f} "
            f"{mean_stage(mine, 'update'):7.2f} {mean_stage(mine, 'profile'):8.2f} {ratio:6.3f} "
            f"{winners(own, truth):8.3f}"
        )
    return lines


def times(runs: Sequence[dict[str, Any]]) -> dict[str, tuple[str, float]]:
    """Each candidate's workload, and its median time over the repeats."""
    found: dict[str, tuple[str, list[float]]] = {}
    for run in runs:
        for digest, (workload, time_us) in run["outcomes"].items():
            found.setdefault(digest, (workload, []))[1].append(time_us)
    return {digest: (workload, statistics.median(all_us)) for digest, (workload, all_us) in found.items()}


def winners(own: dict[str, tuple[str, float]], truth: dict[str, tuple[str, float]]) -> float:
    """How much slower, by the dedicated runs, the worst of the chosen programs is than the best there is."""
    worst = 1.0
    for workload in {workload for workload, _ in own.values()}:
        mine = {d: us for d, (w, us) in own.items() if w == workload and d in truth}
        chosen = min(mine, key=lambda digest: mine[digest])
        best = min(us for d, (w, us) in truth.items() if w == workload and d in mine)
        worst = max(worst, truth[chosen][1] / best)
    return worst


def mean_stage(runs: Sequence[dict[str, Any]], kind: str) -> float:
    """Mean seconds of a stage of this kind."""
    return statistics.fmean(second for run in runs for second in run["stages"].get(kind, [0.0]))


def median(runs: Sequence[dict[str, Any]], key: str) -> float:
    """Over the repeats."""
    return statistics.median(run[key] for run in runs)


def write(options: argparse.Namespace, runs: Sequence[dict[str, Any]]) -> None:
    """Everything that was measured so far."""
    document = {"date": datetime.date.today().isoformat(), "options": vars(options), "runs": runs}
    (RESULTS / "runs.json").write_text(json.dumps(document))


if __name__ == "__main__":
    main()
