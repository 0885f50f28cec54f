"""How many decisions a second the scheduler makes, and how that changes with the number of jobs and devices.

    python benchmarks/scheduler_speed.py

Mock jobs in virtual time on hosts of four cores and devices of four types; a decision is a stage that is started.  Only
the time inside the scheduler is counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event
from kintune.scheduler.machine import Limits, Machine
from kintune.scheduler.policies import policy
from kintune.simulate.mix import Mix
from kintune.simulate.world import World

SIZES = ((100, 10), (1000, 100), (10_000, 1000))


class Timed(Machine):
    """A machine that counts its decisions and the seconds they took."""

    seconds = 0.0
    decisions = 0

    def handle(self, event: Event) -> list[Decision]:
        """As the machine does."""
        began = time.perf_counter()
        decisions = super().handle(event)
        self.seconds += time.perf_counter() - began
        self.decisions += len(decisions)
        return decisions


def speed(name: str, jobs: int, devices: int, rounds: float) -> tuple[int, float]:
    """Decisions, and microseconds of each."""
    share = devices // 10
    mix = Mix(
        jobs=jobs,
        hosts=max(1, 2 * devices // 5),
        types=(4 * share, 3 * share, 2 * share, share),
        rounds=(rounds, 0.3),
    )
    machine = Timed(policy(name), Limits())
    World(machine, mix.resources(), mix.draw(0)).run()
    return machine.decisions, 1e6 * machine.seconds / machine.decisions


def main(arguments: Iterable[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="*", default=["sequential", "greedy", "fair", "predictive"])
    parser.add_argument("--rounds", type=float, default=5.0, help="rounds of a job")
    options = parser.parse_args(None if arguments is None else list(arguments))
    print(f"{'policy':12} {'jobs':>7} {'devices':>8} {'decisions':>10} {'us each':>8} {'a second':>9}")
    for name in options.policies:
        for jobs, devices in SIZES:
            if name == "sequential" and jobs > 1000:
                continue  # one stage at a time: virtual days, and nothing to choose
            decisions, each = speed(name, jobs, devices, options.rounds)
            print(f"{name:12} {jobs:7} {devices:8} {decisions:10} {each:8.1f} {1e6 / each:9.0f}", flush=True)


if __name__ == "__main__":
    main()
