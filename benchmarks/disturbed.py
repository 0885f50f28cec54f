"""Measures what other processes on the device's cores do to timings, and what repeating disturbed timings gains.

    python benchmarks/disturbed.py

A small network is tuned.  Then the measured candidates are timed repeatedly by the device worker's own code, in turns
under four conditions: with nothing else running; with the web part of a service that 200 clients poll (at idle
priority, as always, and so are the clients, since they would be on other machines); with processes at idle priority
that never sleep; and with a process of normal priority that runs now and then.  Every candidate is timed at normal and
at real-time priority, three times each, so that the accepted times can be compared with those without repeats.  Results
go to `notebook/results/disturbed.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from kintune.api import Model
from kintune.core.candidate import Candidate
from kintune.core.stage_requests import BuildContext, Built, ProfileContext, ProfileItem
from kintune.core.stage_results import Prepared, StageName
from kintune.hardware.cores import set_realtime_priority
from kintune.measure.interference import MAX_WAITING, PAUSES_S, InterferenceFilter
from kintune.records import Store
from kintune.testing.serving import serving
from kintune.testing.small_onnx import write_small_onnx
from kintune.workers.device_worker import open_device

RESULTS = Path(__file__).parents[1] / "notebook/results" / "disturbed.json"
Timed = TypeVar("Timed")

IDLE = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
NEIGHBOUR = """
import random, time
draw = random.Random(0)
while True:
    time.sleep(draw.uniform(0.0, 0.4))
    until = time.monotonic() + draw.uniform(0.0, 0.2)
    while time.monotonic() < until: pass
"""
CLIENTS = """
import os, sys, threading, time, urllib.request
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
def poll(phase):
    time.sleep(phase)
    while True:
        urllib.request.urlopen(sys.argv[1] + "/api/v1/jobs?limit=50").read()
        time.sleep(5)
for number in range(200):
    threading.Thread(target=poll, args=(number / 40,), daemon=True).start()
time.sleep(10_000)
"""


class Thrice(InterferenceFilter):
    """Times everything three times, however disturbed, and keeps the waiting time and the median of each."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[float, float]] = []

    def timed(self, measure: Callable[[], Timed]) -> Timed:
        """The first time, as without the interference filter."""
        found = []
        for pause in (0.0, *PAUSES_S):
            time.sleep(pause)
            found.append(self.waiting(measure))
        self.attempts = [(waited, statistics.median(cast("Sequence[float]", times))) for waited, times in found]
        return found[0][1]


def main() -> None:
    """Measure, write the results and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--show", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.show:
        document = measure(options)
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(summary(json.loads(RESULTS.read_text())["measured"])))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure under all conditions, in turns."""
    from kintune.measure.run import Runner  # takes the number of threads that `open_device` sets

    with tempfile.TemporaryDirectory() as name, serving(Path(name, "data"), "--part", "web", ready="/healthz") as web:
        about, _ = open_device("native", 0)
        items, references = workload(Path(name), about.device_type.target, options)
        interference = Thrice()
        runner = Runner(about.cores, interference=interference)
        runner.begin(ProfileContext(about.protocol, references))
        conditions: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "nobody": contextlib.nullcontext,
            "service": lambda: running(CLIENTS, web.url),
            "idle": lambda: running(*[IDLE] * (os.cpu_count() or 1)),
            "neighbour": lambda: running(NEIGHBOUR),
        }
        measured = []
        for round in range(options.rounds):
            for condition in random.Random(round).sample(sorted(conditions), len(conditions)):
                with conditions[condition]():
                    time.sleep(1.0)
                    for number, item in enumerate(items):
                        for urgent in (False, True) if (round + number) % 2 else (True, False):
                            set_realtime_priority(urgent)
                            if not runner.profile(item).ok:
                                raise SystemExit("a candidate that ran before fails")
                            attempts = [{"waited": waited, "us": us} for waited, us in interference.attempts]
                            what = {"round": round, "condition": condition, "urgent": urgent, "candidate": number}
                            measured.append({**what, "of": attempts})
                set_realtime_priority(False)
                print(f"round {round}: {condition}", flush=True)
    return {"date": datetime.date.today().isoformat(), "options": vars(options), "measured": measured}


def workload(place: Path, target: str, options: argparse.Namespace) -> tuple[list[ProfileItem], dict[str, Built]]:
    """Built candidates of a tuned network, from fast to slow, and the untuned programs."""
    from kintune.compiler.build import CandidateBuilder

    model, records = write_small_onnx(place / "net.onnx", channels=64), str(place / "records.sqlite")
    Model.parse(str(model)).tune(trials=options.trials, records=records, output=place / "net.kt")
    with Store.open(records) as store:
        (run,) = store.runs.list()
        (event,) = [e for e in store.events.history(run.run_id) if e.kind == StageName.PREPARE]
        prepared = msgspec.msgpack.decode(event.payload, type=Prepared)
        found = [measured for measured in store.measurements.find(run_id=run.run_id) if measured.outcome.ok]
    sketches = {sketch.digest: sketch for sketch in prepared.sketches}
    builder, context = CandidateBuilder(target), BuildContext(target, prepared.modules, sketches)
    chosen = sorted(found, key=lambda record: record.outcome.median_us)[:: max(1, len(found) // options.candidates)]
    workloads = {each.candidate.workload for each in found}
    references = {each: builder.build(context, Candidate.untuned(each)) for each in workloads}
    items = [ProfileItem(r.candidate.workload, builder.build(context, r.candidate)) for r in chosen]
    return items, references


@contextlib.contextmanager
def running(*programs: str) -> Iterator[None]:
    """Run these Python programs during the block; an address is the argument of the program before it."""
    commands: list[list[str]] = []
    for program in programs:
        if program.startswith("http"):
            commands[-1].append(program)
        else:
            commands.append([sys.executable, "-c", program])
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def summary(measured: list[dict[str, Any]]) -> list[str]:
    """A line for each condition: how many timings were disturbed, and their errors without and with repeats.

    A candidate's true time is the median of its medians with nothing else running.
    """
    truth: dict[int, float] = {}
    for number in {each["candidate"] for each in measured}:
        mine = [e for e in measured if e["candidate"] == number]
        alone = [e for e in mine if e["condition"] == "nobody" and not e["urgent"]]
        truth[number] = statistics.median(attempt["us"] for each in alone for attempt in each["of"])
    lines = [f"{'':20} disturbed  off by, once: median, p90, worst    off by, repeated: median, p90, worst"]
    for condition, urgent in itertools.product(sorted({each["condition"] for each in measured}), (False, True)):
        once, kept, disturbed = [], [], 0
        for each in measured:
            if (each["condition"], each["urgent"]) != (condition, urgent):
                continue
            first, *_ = attempts = each["of"]
            chosen = next((a for a in attempts if a["waited"] <= MAX_WAITING), min(attempts, key=lambda a: a["waited"]))
            disturbed += first["waited"] > MAX_WAITING
            once.append(abs(first["us"] / truth[each["candidate"]] - 1))
            kept.append(abs(chosen["us"] / truth[each["candidate"]] - 1))
        name = f"{condition}{', real-time' if urgent else ''}"
        lines.append(f"{name:20} {disturbed / len(once):8.1%}  {_three(once)}     {_three(kept)}")
    return lines


def _three(errors: list[float]) -> str:
    ordered = sorted(errors)
    return f"{statistics.median(ordered):8.1%} {ordered[int(0.9 * len(ordered))]:8.1%} {ordered[-1]:8.1%}"


if __name__ == "__main__":
    main()
