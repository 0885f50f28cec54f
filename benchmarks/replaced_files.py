"""What it costs to notice that a result's file was changed, and to open a copy instead.

    python benchmarks/replaced_files.py small.kt [large.kt ...]

For each file: how long a run takes with the file mapped and with a copy, in turns, so that the difference is what
looking at the file costs; how long it takes to open either in a new process, and the memory that such a process then
has for itself and does not share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import kintune_runtime
from kintune_runtime.inputs import draw_inputs

OPENED = """
import json, sys, time
import kintune_runtime
import kintune_runtime.executable
from kintune_runtime.library import library
library()
def private_kb():
    with open("/proc/self/smaps_rollup") as file:
        found = dict(line.split(":", 1) for line in list(file)[1:])
    return sum(int(found[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
before, begun = private_kb(), time.perf_counter()
model = kintune_runtime.open(sys.argv[1], private=sys.argv[2] == "copy")
ended = time.perf_counter()
print(json.dumps([ended - begun, (private_kb() - before) / 1e3]))
"""


def opened(path: str, how: str, rounds: int) -> tuple[float, float]:
    """The least seconds that opening takes, and the MB that the process then has for itself."""
    command = [sys.executable, "-c", OPENED, path, how]
    each = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(rounds)]
    return min(seconds for seconds, _ in each), statistics.median(mb for _, mb in each)


def mean_us(run: Callable[[], object], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begun) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", help="results for this machine's CPU")
    parser.add_argument("--rounds", type=int, default=200, help="how often each is timed; the least counts")
    parser.add_argument("--block-ms", type=float, default=5.0, help="how long the runs of a round take together")
    options = parser.parse_args()
    for path in options.files:
        models = {"mapped": kintune_runtime.open(path), "copy": kintune_runtime.open(path, private=True)}
        drawn = draw_inputs(models["mapped"].described_inputs(), 0)
        runs = {how: partial(model.context(threads=1).run, drawn) for how, model in models.items()}
        count = max(1, int(options.block_ms * 1e3 / mean_us(runs["copy"], 3)))
        times: dict[str, list[float]] = {how: [] for how in runs}
        for _ in range(options.rounds):
            for how, run in runs.items():
                times[how].append(mean_us(run, count))
        least_us = {how: min(each) for how, each in times.items()}
        print(f"{path}: a run takes {least_us['mapped']:.2f} us mapped, {least_us['copy']:.2f} us copied")
        for how in runs:
            seconds, mb = opened(path, how, 5)
            print(f"  {how}: opened in {seconds * 1e3:.1f} ms, {mb:.1f} MB for itself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
