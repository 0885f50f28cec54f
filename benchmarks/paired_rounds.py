"""Which of two ways to form a ratio of latencies is steadier on a machine that others use as well.

    python benchmarks/paired_rounds.py MODEL.kt MODEL.onnx [--rounds 60] [--out FILE.json]

The tuned network and onnxruntime on its original are timed in turns, for many rounds.  Each ten rounds that follow one
another are taken for a comparison of their own.  Its ratio is formed of the medians of all runs (`pooled`), and as the
median of the ratios of its rounds (`paired`).  What is printed says how far these ratios lie apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from kintune.core.paired_ratio import paired_ratio
from kintune.core.quantiles import quantile
from kintune.core.stage_requests import ValidationContext
from kintune.hardware.cores import choose_cores
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import KINTUNE, BaselineModel
from kintune.validate.interleaved import time_interleaved

__all__ = ["Recorded", "main", "paired", "pooled"]

_WINDOW = 10  # rounds of a comparison
_OTHER = "onnxruntime"


class Recorded:
    """A process that takes turns, and what each turn took in milliseconds."""

    def __init__(self, process: BaselineProcess) -> None:
        self.name = process.name
        self.turns: list[tuple[float, ...]] = []
        self._process = process

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Take a turn, and keep its times."""
        self.turns.append(self._process.turn(turn, seconds))
        return self.turns[-1]


def pooled(ours: list[tuple[float, ...]], others: list[tuple[float, ...]]) -> float:
    """The ratio of the medians of all runs."""
    first, second = (statistics.median(run for turn in turns for run in turn) for turns in (ours, others))
    return first / second


def paired(ours: list[tuple[float, ...]], others: list[tuple[float, ...]]) -> float:
    """The median of the ratios of rounds."""
    return paired_ratio(*([statistics.median(turn) for turn in turns] for turns in (ours, others)))


def main(arguments: list[str]) -> int:
    """Time, and print both kinds of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executable")
    parser.add_argument("onnx")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.rounds < _WINDOW:
        parser.error(f"--rounds {options.rounds}: at least {_WINDOW} are needed")
    tensors = read_manifest(Path(options.executable)).inputs
    subjects = {KINTUNE: BaselineModel(executable=options.executable), _OTHER: BaselineModel(onnx=options.onnx)}
    conditions = ValidationContext(
        options.threads, rounds=options.rounds, min_rounds=options.rounds, race_seconds=float("inf")
    )
    with ExitStack() as processes:
        running = []
        for name, subject in subjects.items():
            context = BaselineContext(
                rival=name, subject=subject, tensors=tensors, inputs=None, seed=0, threads=options.threads,
                cores=choose_cores(options.threads),
            )  # fmt: skip
            process = processes.enter_context(BaselineProcess(name, context))
            process.prepare(conditions.prepare_seconds)
            running.append(Recorded(process))
        time_interleaved(running, conditions, time.monotonic)
    ours, others = (each.turns for each in running)
    starts = range(len(ours) - _WINDOW + 1)
    for name, ratio in (("pooled", pooled), ("paired", paired)):
        found = sorted(ratio(ours[at : at + _WINDOW], others[at : at + _WINDOW]) for at in starts)
        low, middle, high = (quantile(found, share) for share in (0.1, 0.5, 0.9))
        print(f"{name}: {middle:.3f}, 8 of 10 from {low:.3f} to {high:.3f}, all from {found[0]:.3f} to {found[-1]:.3f}")
    if options.out:
        Path(options.out).write_text(json.dumps({KINTUNE: ours, _OTHER: others}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
