"""The proof of a tuned network: that it computes what the model computes, and how fast it is beside others.

Runs in the device worker, which stays idle meanwhile; every contender is a process of its own.  See
docs/design/validation.md.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.errors import NumericsError
from kintune.hardware.gpus import is_gpu
from kintune.models.constants import located
from kintune.runtime.inputs import load_arranged
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.interleaved import QUICK_SECONDS, TURN_SECONDS, WARM_SECONDS, InterleavedTimes, time_interleaved
from kintune.validate.noise import FACTOR
from kintune.validate.numerics import Difference
from kintune.validate.per_program import ProgramComparison
from kintune.validate.validation_run import TUNED, UNTUNED, Trial
from kintune.wire.staging import locate

__all__ = ["TUNED", "UNTUNED", "prove", "prove_executable", "seconds_of_proof"]


_ON_CPU = "runs on the CPU here: its numbers are compared, its speed is not"


def prove(context: bytes, payload: bytes, board: str = "") -> bytes:
    """Answer one item of a PROVE stage: an encoded `ValidationContext` and `ValidationItem` to an encoded
    `ValidationResult`.

    With a `board`, the address of an RPC server, the network runs there.

    Raises:
        InputError: a file cannot be used.
        NumericsError: the tuned network does not run at all.
    """
    conditions = msgspec.msgpack.decode(context, type=ValidationContext)
    item = msgspec.msgpack.decode(payload, type=ValidationItem)
    return msgspec.msgpack.encode(prove_executable(conditions, _located(item), board=board))


def prove_executable(
    conditions: ValidationContext, item: ValidationItem, clock: Callable[[], float] = time.monotonic, board: str = ""
) -> ValidationResult:
    """Prove one executable; raises as `prove` does.  A rival that fails is recorded in `skipped` and ends nothing."""
    manifest = read_manifest(item.tuned)
    for path in item.inputs:
        load_arranged(manifest.inputs, path)
    with tempfile.TemporaryDirectory(prefix="kintune-proof-") as directory, ExitStack() as contenders:
        trial = Trial(conditions, item, manifest, Path(directory), board)
        latency = trial.run_untuned() if item.timed else {}
        tuned, *references = trial.enter_all(trial.compared, contenders)
        if tuned is None:
            raise NumericsError(f"the tuned network does not run: {trial.skipped[TUNED]}")
        difference, compared = trial.compare([reference for reference in references if reference is not None])
        for reference in references:
            if reference is not None:
                reference.close()
        alone = trial.compare_each_program() if _basis(difference) else ProgramComparison()
        difference = _together(difference, alone, item)
        raced = InterleavedTimes({}, {})
        if item.timed:
            latency, raced = _race(trial, tuned, latency, contenders, clock)
    if TUNED in raced.dropped:
        raise NumericsError(f"the tuned network stopped running: {raced.dropped[TUNED]}")
    return ValidationResult(
        latency_ms={**latency, **raced.latency_ms},
        max_abs_error=difference.absolute if compared else None,
        max_rel_error=difference.relative if compared else None,
        within_tolerance=not difference.disagreement if compared else None,
        compared_with=compared,
        skipped={**trial.skipped, **raced.dropped},
        disagreement=difference.disagreement,
        noise=difference.noise,
        basis=_basis(difference),
        alone=tuple(item.titles.get(workload, workload) for workload in alone.compared),
        not_alone={item.titles.get(workload, workload): why for workload, why in alone.left_out.items()},
        wrong_alone=dict(alone.wrong),
    )


def _basis(difference: Difference) -> str:
    """What was allowed beyond the tolerances, and why, in one line; empty when nothing was needed or helped."""
    if difference.noise is None or difference.disagreement:
        return ""
    return (
        f"nearer than {FACTOR:g} times what rounding alone does to this model: a few units in the last place of inputs"
        f" and weights move its outputs by {difference.noise:.2g} of their deviation"
    )


def _together(difference: Difference, alone: ProgramComparison, item: ValidationItem) -> Difference:
    """The difference, or the first subgraph that is wrong by itself."""
    for workload, how in alone.wrong.items():
        title = item.titles.get(workload, workload)
        return difference._replace(disagreement=f"{title} by itself, on what it gets in the network: {how}")
    return difference


def _race(
    trial: Trial,
    tuned: BaselineProcess,
    latency: dict[str, tuple[float, ...]],
    contenders: ExitStack,
    clock: Callable[[], float],
) -> tuple[dict[str, tuple[float, ...]], InterleavedTimes]:
    """Times of those who race; before, the times of the untuned network that are to be kept besides."""
    ours = [tuned]
    if not trial.board and latency and latency[UNTUNED][0] < QUICK_SECONDS * 1e3:
        latency = {}
        if (untuned := trial.enter(UNTUNED, contenders)) is not None:
            ours.append(untuned)
    rivals = [rival for name in trial.item.compare if (rival := trial.enter(name, contenders)) is not None]
    if trial.board or is_gpu(trial.manifest.target):
        rivals = trial.dismiss(rivals, _ON_CPU)
    return latency, time_interleaved([*ours, *rivals], trial.conditions, clock)


def _located(item: ValidationItem) -> ValidationItem:
    """The same with the files where this process finds them."""

    def found(path: str | None) -> str | None:
        return None if path is None else locate(path)

    return msgspec.structs.replace(
        item,
        tuned=locate(item.tuned),
        untuned=found(item.untuned),
        alone=found(item.alone),
        onnx=found(item.onnx),
        exported=found(item.exported),
        inputs=tuple(map(locate, item.inputs)),
        constants={name: located(constant, locate) for name, constant in item.constants.items()},
    )


_ENTERING_S = 1.0  # a process starts, loads its libraries and the network; torch, which compiles first, takes longer


def seconds_of_proof(conditions: ValidationContext, *, tuned_s: float, untuned_s: float, rivals: int) -> float:
    """Seconds, from those that one run takes of the network tuned and untuned; rivals are taken to be as fast as ours.

    Most of it is the single run of a slow untuned network, or else what the entrants are timed for.
    """
    untuned_s = min(untuned_s, conditions.untuned_seconds)
    entrants = [tuned_s] * (1 + rivals)
    entering = untuned_s + _ENTERING_S
    entering += _ENTERING_S + tuned_s if rivals else 0.0  # whoever runs the model itself, to compare numbers
    if untuned_s < QUICK_SECONDS:
        entrants.append(untuned_s)
    entering += sum(_ENTERING_S + run_s for run_s in entrants)
    turns_s = sum(_turn_s(run_s, conditions.runs) for run_s in entrants)
    least_s = conditions.min_rounds * turns_s
    return entering + min(conditions.rounds * turns_s, max(least_s, conditions.race_seconds + turns_s / 2))


def _turn_s(run_s: float, runs: int) -> float:
    return max(WARM_SECONDS, run_s) + min(runs * run_s, max(TURN_SECONDS, run_s))
