"""Measures the scheduler's decisions per second against the number of jobs and devices.

    python benchmarks/scheduler_speed.py

Jobs of fifty models go through rounds of select, build, profile and update in virtual time, on hosts of four cores and
devices of four types.  A decision is a stage that is started; only the seconds inside the scheduler count.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections.abc import Sequence

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import Event, JobAdded, JobEnded, JobExpects, ResourceJoined, StageDone, StageReady, Start
from kintune.scheduler.policies import policy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import Scheduler

SIZES = ((100, 10), (1000, 100), (10_000, 1000))
KINDS = (("select", 0.58), ("build", 4.84), ("profile", 2.2), ("update", 0.21))
MODELS, TYPES = 50, 4


class Park:
    """Jobs on machines; the scheduler spent `seconds` on `decisions` decisions."""

    def __init__(self, name: str, jobs: int, devices: int, rounds: int) -> None:
        self.seconds = 0.0
        self.decisions = 0
        self._machine = Scheduler(policy(name))
        self._ends: list[tuple[float, int, Start]] = []
        self._draw = random.Random(0)
        self._now = 0.0
        self._last = 4 * rounds
        for n in range(max(1, 2 * devices // 5)):
            self._tell(ResourceJoined(0.0, Host(f"host{n}", 4, 1 << 20)))
        for n in range(devices):
            self._tell(ResourceJoined(0.0, Device(f"device{n}", f"type{n % TYPES}")))
        for n in range(jobs):
            self._tell(JobAdded(0.0, f"job{n}"))
            self._tell(JobExpects(0.0, f"job{n}", {f"model{n % MODELS}/{kind}": rounds for kind, _ in KINDS}))
        for n in range(jobs):
            self._ask(f"job{n}", 0)

    def run(self) -> None:
        """Run until all jobs are over."""
        while self._ends:
            self._now, _, start = heapq.heappop(self._ends)
            self._tell(StageDone(self._now, start.job, start.stage, 0))
            self._ask(start.job, int(start.stage) + 1)

    def _ask(self, job: str, step: int) -> None:
        if step == self._last:
            self._tell(JobEnded(self._now, job))
            return
        kind, _ = KINDS[step % 4]
        number = int(job[3:])
        device = f"type{number % TYPES}"
        demands = (Demand(cores=1), Demand(cores=2), Demand(device=device, exclusive=True), Demand(cores=1))
        own = job if kind in ("select", "update") else None
        key = f"model{number % MODELS}/{kind}"
        then = demands[(step + 1) % 4]
        self._tell(StageReady(self._now, Stage(str(step), job, kind, demands[step % 4], own, key, then=then)))

    def _tell(self, event: Event) -> None:
        began = time.perf_counter()
        decisions = self._machine.handle(event)
        self.seconds += time.perf_counter() - began
        for decision in decisions:
            assert isinstance(decision, Start)
            self.decisions += 1
            seconds = KINDS[int(decision.stage) % 4][1] * self._draw.lognormvariate(0.0, 0.5)
            heapq.heappush(self._ends, (self._now + seconds, self.decisions, decision))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="*", default=["greedy", "fair", "predictive"])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of a job")
    options = parser.parse_args(arguments)
    print(f"{'policy':12} {'jobs':>7} {'devices':>8} {'decisions':>10} {'us each':>8} {'a second':>9}")
    for name in options.policies:
        for jobs, devices in SIZES:
            park = Park(name, jobs, devices, options.rounds)
            park.run()
            each = 1e6 * park.seconds / park.decisions
            print(f"{name:12} {jobs:7} {devices:8} {park.decisions:10} {each:8.1f} {1e6 / each:9.0f}", flush=True)


if __name__ == "__main__":
    main()
