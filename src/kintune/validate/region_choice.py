"""Chooses what runs as compiled kernels: regions that are faster than onnxruntime on the same nodes, and the network as
a whole only if it is not slower than onnxruntime.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kintune.core.paired_ratio import paired_ratio
from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.partition.keeping import write_region
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext
from kintune.validate.baselines import FLUSHING, KINTUNE, BaselineModel
from kintune.validate.interleaved import time_interleaved

__all__ = ["is_slower", "winning_regions", "wins"]

_MOST_TIMED = 24  # regions; in a graph of more, the others stay as they are
_SECONDS = 1.5  # for the rounds of one region
_SLOWER = 1.02
_SLOWER_MS = 0.005
_FASTER = 0.98


def is_slower(ours_ms: Sequence[float], theirs_ms: Sequence[float]) -> bool:
    """Return whether ours are slower than theirs by more than 2 % and 5 microseconds.

    Both have the latency of each round in milliseconds, in the same order; see `paired_ratio`.
    """
    theirs = statistics.median(theirs_ms)
    return paired_ratio(ours_ms, theirs_ms) * theirs > max(_SLOWER * theirs, theirs + _SLOWER_MS)


def wins(ours_ms: Sequence[float], theirs_ms: Sequence[float]) -> bool:
    """Return whether ours are faster than theirs by more than 2 %; see `is_slower`."""
    return paired_ratio(ours_ms, theirs_ms) < _FASTER


def winning_regions(
    path: Path,
    directory: Path,
    conditions: ValidationContext,
    cores: Sequence[int],
    seed: int,
    clock: Callable[[], float],
) -> tuple[int, ...]:
    """Return the numbers of the regions that are faster by themselves, by 2 %, than onnxruntime on the same nodes.

    `path` is a hybrid result that is not published; files are written into `directory`.  A region counts as faster
    without being timed if it does not run by itself in either, or if its number is 24 or larger.
    """
    hybrid = read_manifest(path).hybrid
    count = len(hybrid.regions) if hybrid is not None else 0
    return tuple(
        number
        for number in range(count)
        if number >= _MOST_TIMED or _wins(path, number, directory, conditions, cores, seed, clock)
    )


def _wins(
    path: Path,
    number: int,
    directory: Path,
    conditions: ValidationContext,
    cores: Sequence[int],
    seed: int,
    clock: Callable[[], float],
) -> bool:
    executable, graph = directory / f"region{number}.kt", directory / f"region{number}.onnx"
    write_region(path, number, executable, graph)
    tensors = read_manifest(executable).inputs
    keeps = read_manifest(executable).keep_denormals
    baseline = "onnxruntime" if keeps else FLUSHING["onnxruntime"]  # as the result's own sessions of it
    brief = msgspec.structs.replace(conditions, rounds=6, min_rounds=2, race_seconds=_SECONDS)
    rivals = {
        KINTUNE: BaselineModel(executable=str(executable)),
        baseline: BaselineModel(onnx=str(graph)),
    }
    with ExitStack() as processes:
        running = []
        try:
            for name, subject in rivals.items():
                context = BaselineContext(
                    rival=name,
                    subject=subject,
                    tensors=tensors,
                    inputs=None,
                    seed=seed,
                    threads=conditions.threads,
                    cores=tuple(cores),
                )
                process = processes.enter_context(BaselineProcess(name, context))
                process.prepare(conditions.prepare_seconds)
                running.append(process)
        except EngineError:
            return True
        rounds_ms = time_interleaved(running, brief, clock).rounds_ms
    if len(rounds_ms) < len(rivals):
        return True
    return wins(rounds_ms[KINTUNE], rounds_ms[baseline])
