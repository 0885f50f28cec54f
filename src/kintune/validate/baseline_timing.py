"""Times baselines on the user's own model before anything is tuned, for some seconds each.

It runs in the device worker, which stays idle meanwhile; every runtime has a process of its own, and they take turns as
in a validation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import msgspec

from kintune.core.model import Combination, spell_shapes
from kintune.core.stage_requests import BaselineItem, ValidationContext
from kintune.core.stage_results import BaselineLatencies
from kintune.errors import EngineError
from kintune.hardware.cores import choose_cores
from kintune.models.constants import located
from kintune.runtime.inputs import load_fitting
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext
from kintune.validate.baselines import BaselineModel, takes
from kintune.validate.interleaved import TimedEntry, time_interleaved
from kintune.wire.staging import locate
from kintune.wire.worker_client import WorkerRefused

__all__ = ["SECONDS_EACH", "baseline_conditions", "estimate_baselines_s", "time_baselines", "time_models"]

SECONDS_EACH = 3.0
"""Seconds of timed turns of each baseline, at most, unless a single turn takes longer."""

_LEAST_SECONDS = 0.5  # of each baseline with each combination of shapes
_ALL_SHAPES_S = 6.0  # seconds of each baseline with all combinations of shapes together
_SHARE = 0.05  # of the seconds that the user has given to tuning, at most
_ROUNDS = 30  # three times those of the report; for a network of a few milliseconds they take a second
_PREPARE_S = 60.0
_START_S = 1.5  # a process starts, loads its libraries and the network

StartTimed = Callable[[str, BaselineContext], BaselineProcess]
"""Starts the process of a baseline of this name."""


def baseline_conditions(threads: int, *, minutes: float | None = None, combinations: int = 1) -> ValidationContext:
    """Return the conditions under which baselines are timed with each of several `combinations` of shapes.

    `race_seconds` are those of one baseline.  They are `SECONDS_EACH`, less where tuning is to take only a few
    `minutes`, or where there are many combinations.
    """
    seconds = min(SECONDS_EACH, _ALL_SHAPES_S / combinations)
    if minutes is not None:
        seconds = min(seconds, _SHARE * minutes * 60 / combinations)
    return ValidationContext(
        threads=threads,
        rounds=_ROUNDS,
        min_rounds=1,
        race_seconds=max(_LEAST_SECONDS, seconds),
        prepare_seconds=_PREPARE_S,
    )


def estimate_baselines_s(conditions: ValidationContext, baselines: int, combinations: int = 1) -> float:
    """Return the estimated seconds of timing so many baselines with each combination of shapes."""
    return combinations * baselines * (_START_S + conditions.race_seconds)


def time_baselines(context: bytes, payload: bytes) -> bytes:
    """Handle the item of a BASELINE stage: takes an encoded `ValidationContext` and `BaselineItem`, returns encoded
    `BaselineLatencies`.

    Raises:
        InputError: a file of inputs cannot be used.
    """
    conditions = msgspec.msgpack.decode(context, type=ValidationContext)
    item = msgspec.msgpack.decode(payload, type=BaselineItem)
    return msgspec.msgpack.encode(time_models(conditions, _located(item)))


def time_models(
    conditions: ValidationContext,
    item: BaselineItem,
    clock: Callable[[], float] = time.monotonic,
    start: StartTimed = BaselineProcess,
) -> BaselineLatencies:
    """Time the baselines with each combination of shapes.  Those that cannot be timed are named with the reason.

    `clock` tells seconds.

    Raises:
        InputError: a file of inputs cannot be used.
    """
    cores = choose_cores(conditions.threads)
    model = BaselineModel(onnx=item.onnx, exported=item.exported, constants=item.constants)
    names = [name for name in item.compare if takes(name, model)]
    combinations = [Combination(tensors, ()) for tensors in item.combinations]
    given: dict[int, str] = {}
    for path in item.inputs:
        given.setdefault(load_fitting(combinations, path)[0], path)
    each: list[dict[str, tuple[float, ...]]] = []
    failures: dict[str, str] = {}
    absent: dict[str, str] = {}
    for number, combination in enumerate(combinations):
        context = BaselineContext(
            rival="",
            subject=model,
            tensors=combination.inputs,
            inputs=given.get(number),
            seed=item.seed,
            threads=len(cores),
            cores=cores,
        )
        times, failed = _time(conditions, [name for name in names if name not in absent], context, absent, clock, start)
        with_these = f" (with {spell_shapes(combination.shapes)})" if len(combinations) > 1 else ""
        for name, why in failed.items():
            failures.setdefault(name, f"{why}{with_these}")
        each.append(times)
    return BaselineLatencies(tuple(each), failures, absent)


def _time(
    conditions: ValidationContext,
    names: list[str],
    context: BaselineContext,
    absent: dict[str, str],
    clock: Callable[[], float],
    start: StartTimed,
) -> tuple[dict[str, tuple[float, ...]], Mapping[str, str]]:
    """Time the baselines `names` with one combination of shapes; returns milliseconds by name, and why others failed.

    Those that say they cannot run here are added to `absent`, with the reason.
    """
    failures: dict[str, str] = {}
    running: list[TimedEntry] = []
    with ExitStack() as processes:
        for name in names:
            process = processes.enter_context(start(name, msgspec.structs.replace(context, rival=name)))
            try:
                process.prepare(conditions.prepare_seconds)
            except EngineError as error:
                reasons = absent if isinstance(error, WorkerRefused) and error.wrong_input else failures
                reasons[name] = str(error)
                process.close()
                continue
            running.append(process)
        shared = msgspec.structs.replace(conditions, race_seconds=conditions.race_seconds * len(running))
        timed = time_interleaved(running, shared, clock)
    return timed.latency_ms, {**failures, **timed.dropped}


def _located(item: BaselineItem) -> BaselineItem:
    """Return the item with the paths at which this process finds its files."""
    return msgspec.structs.replace(
        item,
        onnx=None if item.onnx is None else os.fspath(locate(item.onnx)),
        exported=None if item.exported is None else os.fspath(locate(item.exported)),
        inputs=tuple(map(locate, item.inputs)),
        constants={name: located(constant, locate) for name, constant in item.constants.items()},
    )
