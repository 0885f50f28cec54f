"""Tunes the compiler flags of C programs under Kintune's scheduler: a job that knows nothing of tensors.

    python examples/compiler_flags.py first.c second.c --policy predictive --rounds 5

Each program is a job with the four stages: it *selects* sets of flags, *builds* with each, *profiles* the binaries one
by one, and *updates* what it thinks of every flag.  Programs must exit with 0 and are timed as whole processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from kintune.core.messages import Committed, Finished, ItemStatus, OfferStages, StageClosed, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import KintuneError
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import Scheduler
from kintune.wire.job_loop import Saying, job_main
from kintune.wire.worker_loop import main as worker_main
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.journal import MemoryJournal
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command

FLAGS = (
    "-O2", "-O3", "-march=native", "-ffast-math", "-funroll-loops", "-fno-tree-vectorize", "-fomit-frame-pointer",
    "-fprefetch-loop-arrays", "-fno-inline", "-fprofile-partial-training",
)  # fmt: skip
PROGRAMS_A_ROUND = 6
HOST, DEVICE = Demand(cores=1), Demand(device="cpu", exclusive=True)


class FlagsJob:
    """A fold over committed events: the times of all sets of flags, and what each flag has brought on average."""

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Begin a job, or continue it in a new process; `history` has the events that were committed before."""
        self.job, self.spec = job, json.loads(spec)
        self.times: dict[tuple[str, ...], float] = {}
        self.worth = dict.fromkeys(FLAGS, 0.0)
        self.round, self.step = 0, "select"
        self.chosen: list[list[str]] = []
        self.programs: list[str] = []
        self.stopped = False
        for event in history:
            self._fold(event)
        return self._next()

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """One more result."""
        self._fold(event)
        return ()

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """A stage is over: on to the next."""
        order = ("select", "build", "profile", "update")
        self.step = order[(order.index(self.step) + 1) % 4]
        self.round += self.step == "select"
        return self._next()

    def stop(self, reason: str) -> Iterable[Saying]:
        """No more rounds."""
        self.stopped = True
        return ()

    def begin(self, kind: str, context: bytes) -> None:
        """A stage of this process begins."""
        self.kind = kind

    def item(self, payload: bytes) -> bytes:
        """Carry out an item: select sets of flags, or update the worth of each flag."""
        if self.kind == "update":
            mean = sum(self.times.values()) / max(1, len(self.times))
            for flag in FLAGS:
                having = [t for flags, t in self.times.items() if flag in flags] or [mean]
                self.worth[flag] = 1 - sum(having) / len(having) / mean if mean else 0.0
            return json.dumps(self.worth).encode()
        draw = random.Random(f"{self.job}/{self.round}")
        sets: set[tuple[str, ...]] = {()} if self.round == 0 else set()
        for _ in range(50 * PROGRAMS_A_ROUND):
            likely = [flag for flag in FLAGS if draw.random() < 0.5 + 2 * self.worth[flag]]
            if len(sets) < PROGRAMS_A_ROUND and tuple(likely) not in self.times:
                sets.add(tuple(likely))
        return json.dumps(sorted(sets)).encode()

    def _fold(self, event: Committed) -> None:
        good = event.status is ItemStatus.OK
        self.step, self.round = event.kind, int(event.stage.rpartition("-")[2])
        if event.kind == "select" and good:
            self.chosen, self.programs = json.loads(event.payload), []
        elif event.kind == "build" and good:
            self.programs.append(event.payload.decode())
        elif event.kind == "profile" and good:
            measured = json.loads(event.payload)
            self.times[tuple(measured["flags"])] = measured["seconds"]
        elif event.kind == "update" and good:
            self.worth = json.loads(event.payload)

    def _next(self) -> Iterable[Saying]:
        if self.stopped or self.round >= self.spec["rounds"]:
            best = min(self.times, key=lambda flags: self.times[flags], default=None)
            summary = {"flags": best, "seconds": self.times.get(best or ()), "plain": self.times.get(())}
            yield Finished(best is None, "no program could be built and run", json.dumps(summary).encode())
            return
        if self.step == "build":
            items = [json.dumps({"source": self.spec["source"], "flags": flags}) for flags in self.chosen]
        else:
            items = self.programs if self.step == "profile" else [""]
        own = self.step in ("select", "update")
        demands = {"select": HOST, "build": HOST, "profile": DEVICE, "update": HOST}
        order = list(demands)
        stage = Stage(
            f"{self.step}-{self.round}", self.job, self.step, demands[self.step], self.job if own else None,
            f"{self.job}/{self.step}", then=demands[order[(order.index(self.step) + 1) % 4]],
        )  # fmt: skip
        worker = "job" if own else "build" if self.step == "build" else "device"
        yield OfferStages((Work(stage, worker, b"", tuple(item.encode() for item in items), 60.0, droppable=True),))


class Builder:
    """The build worker: compiles a source with some flags."""

    def begin(self, kind: str, context: bytes) -> None:
        """Nothing is shared."""

    def item(self, payload: bytes) -> bytes:
        """A source and its flags; answers with the binary's path."""
        asked = json.loads(payload)
        place = tempfile.mkdtemp(prefix="flags-", dir=os.environ["FLAGS_DIR"])
        binary = Path(place, "program")
        subprocess.run(["cc", *asked["flags"], asked["source"], "-o", binary, "-lm"], check=True, capture_output=True)
        return json.dumps({"binary": str(binary), "flags": asked["flags"]}).encode()


class Stopwatch:
    """The device worker: times binaries."""

    def begin(self, kind: str, context: bytes) -> None:
        """Nothing is shared."""

    def item(self, payload: bytes) -> bytes:
        """A binary; answers with the median seconds of five runs."""
        built = json.loads(payload)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            subprocess.run([built["binary"]], check=True, capture_output=True)
            times.append(time.perf_counter() - begun)
        return json.dumps({"flags": built["flags"], "seconds": sorted(times)[2]}).encode()


def tune(sources: Sequence[str], name: str, rounds: int) -> None:
    """Run a job for each source under the scheduler, and print what each has found."""
    me = (sys.executable, os.path.abspath(__file__), "--role")
    with tempfile.TemporaryDirectory() as place:
        where = {"FLAGS_DIR": place}
        commands = {"build": Command((*me, "build"), where), "device": Command((*me, "device"), where)}
        resources = [Host("here", 1, 1 << 20), Device("cpu", "cpu")]
        jobs = [
            JobLaunch(source, Command((*me, "job"), where), json.dumps({"source": source, "rounds": rounds}).encode())
            for source in sources
        ]
        with LocalEngine(Scheduler(policy(name)), MemoryJournal(), commands, resources) as engine:
            for job, end in engine.run(jobs, on_stage=lambda job, work: print(f"{job}: {work.stage.id}")).items():
                if end.finished is None or end.finished.failed:
                    print(f"{job}: failed: {end.cause or (end.finished and end.finished.reason)}")
                    continue
                best = json.loads(end.finished.summary)
                plain = f", {best['plain'] / best['seconds']:.2f} times as fast as plain" if best["plain"] else ""
                print(f"{job}: {1e3 * best['seconds']:.1f} ms{plain}: cc {' '.join(best['flags'])}")


if __name__ == "__main__":
    if "--role" in sys.argv:
        role, rest = sys.argv[2], sys.argv[3:]
        if role == "job":
            job_main(lambda _: FlagsJob(), rest)
        else:
            worker_main(role, lambda _: (b"", Builder() if role == "build" else Stopwatch()), rest)
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("sources", nargs="+")
        parser.add_argument("--policy", choices=POLICIES, default="predictive")
        parser.add_argument("--rounds", type=int, default=5)
        options = parser.parse_args()
        try:
            tune(options.sources, options.policy, options.rounds)
        except KintuneError as error:
            sys.exit(f"compiler_flags: error: {error}")
