"""Measures what a priority gains: mean completion times of jobs of priority 1, 2 and 4 together, by policy.

    python benchmarks/priorities.py

Virtual time, so the figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from kintune_lab.simulate.simulation import play
from kintune_lab.simulate.spec import read_schedule_spec

SPEC = Path(__file__).parent / "schedules" / "mix_weighted.toml"


def main() -> None:
    """Run the simulations, and print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    spec = read_schedule_spec(str(SPEC))
    for setup in spec.setups:
        by_priority: dict[float, list[float]] = {}
        worst = 0.0
        for seed in range(options.seeds):
            _, history = play(spec, setup, seed, audit=False)
            priorities = sum(job.priority for job in history.jobs)
            for job in history.jobs:
                took = job.end - job.since
                by_priority.setdefault(job.priority, []).append(took / 60)
                worst = max(worst, took / job.path_s * job.priority / priorities)
        means = ", ".join(
            f"{priority:g}: {statistics.fmean(took):5.1f} min" for priority, took in sorted(by_priority.items())
        )
        print(f"{setup.name:12} {means}; the worst got {worst:.2f} of its share's time")


if __name__ == "__main__":
    main()
