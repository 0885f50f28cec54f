"""A baseline process: `python -m kintune.validate.baseline_worker --fd N`, started by a validation.

It runs one network with one runtime.  No other runtime is ever loaded here, so that no thread pool, allocator or
setting of one can disturb another.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kintune.core.call_times import KernelTimes
from kintune.errors import InputError, OrderError, WireError
from kintune.hardware.software import forbid_torch
from kintune.runtime.inputs import Array, arrange_inputs, draw_inputs, load_arranged
from kintune.validate.baseline_protocol import (
    BASELINE_STAGE,
    BaselineContext,
    BaselineTimes,
    BaselineTurn,
    Order,
    PrepareBaseline,
    ProfileNodesTurn,
    ProfileTurn,
)
from kintune.validate.baselines import KINTUNE, Baseline, make_baseline
from kintune.validate.baselines.kintune_executable import KintuneExecutable
from kintune.validate.baselines.onnx_runtime import OnnxRuntime
from kintune.validate.numerics import perturbed
from kintune.validate.plain_outputs import save_outputs
from kintune.wire import worker_loop as worker
from kintune_runtime.denormals import DenormalsWatch

if TYPE_CHECKING:
    from kintune.validate.board_executable import BoardExecutable
    from kintune_runtime.executable import KernelTime

__all__ = ["BaselineHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)

_Run: TypeAlias = Callable[[], tuple[float, list[Array]]]
"""Runs the network once, and returns the seconds and the outputs, which are valid until the next run."""


class BaselineHandler:
    """Handles a `BaselineContext` to begin with, then a `PrepareBaseline`, then turns."""

    def __init__(self) -> None:
        self._context: BaselineContext | None = None
        self._network: Baseline | BoardExecutable | None = None
        self._run: _Run | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Receives the context."""
        if kind != BASELINE_STAGE:
            raise WireError(f"a baseline process was asked for a stage of kind {kind!r}")
        self._context = msgspec.msgpack.decode(context, type=BaselineContext)

    def item(self, payload: bytes) -> bytes:
        """Carries out one order; returns its answer, empty for a preparation.

        Raises:
            InputError: this runtime cannot run the network.
            OrderError: a turn comes before the preparation.
        """
        match _ORDERS.decode(payload):
            case PrepareBaseline():
                self._run = self._prepare()
                return b""
            case BaselineTurn() as turn:
                if self._run is None:
                    raise OrderError("a baseline process was given a turn before it was prepared")
                self._feed(turn)
                return msgspec.msgpack.encode(_take_turn(self._run, turn))
            case ProfileNodesTurn() as turn:
                if isinstance(self._network, KintuneExecutable):
                    return msgspec.msgpack.encode(self._network.profile_nodes(turn.runs, turn.seconds))
                if not isinstance(self._network, OnnxRuntime):
                    raise OrderError("only onnxruntime tells the times of its nodes, once it is prepared")
                return msgspec.msgpack.encode(self._network.profile(turn.runs, turn.seconds))
            case ProfileTurn() as turn:
                if not isinstance(self._network, KintuneExecutable):
                    raise OrderError("only an executable of Kintune that is prepared tells the times of its kernels")
                return msgspec.msgpack.encode(_profile(self._network, turn))

    def _prepare(self) -> _Run:
        if self._context is None:
            raise OrderError("a baseline process was asked to prepare before it received its context")
        context = self._context
        os.sched_setaffinity(0, context.cores)
        if context.rival == KINTUNE:
            forbid_torch()
        baseline = make_baseline(context.rival, context.exact)
        if reason := baseline.unavailable(context.subject):
            raise InputError(reason)
        inputs = _inputs(context, context.inputs)
        if context.board and context.subject.executable:
            from kintune.validate.board_executable import BoardExecutable

            board = BoardExecutable(context.board)
            board.prepare(context.subject.executable, context.threads, inputs)
            self._network = board
            return board.run_timed
        baseline.prepare(context.subject, context.threads, inputs)
        if context.rival == KINTUNE and context.exact:
            _leave_other_values(baseline, context, inputs)
        self._network = baseline
        return partial(_run_here, baseline)

    def _feed(self, turn: BaselineTurn) -> None:
        """Gives the network the turn's own inputs, if it has any."""
        if self._context is None or self._network is None or (turn.inputs is None and not turn.noise):
            return
        inputs = _inputs(self._context, turn.inputs or self._context.inputs)
        if turn.noise:
            self._network.perturb_weights(turn.noise)
            inputs = {name: perturbed(array, (turn.noise, 1, i)) for i, (name, array) in enumerate(inputs.items())}
        self._network.feed(inputs)


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until the channel is closed."""
    worker.main(BASELINE_STAGE, lambda _arguments: (b"", BaselineHandler()), argv)


def _inputs(context: BaselineContext, path: str | None) -> dict[str, Array]:
    """Returns the inputs of a file, or those drawn from the seed, in the model's order."""
    if path is None:
        arrays = arrange_inputs(context.tensors, [draw_inputs(context.tensors, context.seed)])
    else:
        arrays = load_arranged(context.tensors, path)
    return dict(zip((tensor.name for tensor in context.tensors), arrays, strict=True))


def _leave_other_values(baseline: Baseline, context: BaselineContext, inputs: dict[str, Array]) -> None:
    """Runs once on other inputs, so that memory that a wrong kernel does not write holds wrong values."""
    with contextlib.suppress(Exception):  # such inputs may be senseless to the model
        baseline.feed(draw_inputs(context.tensors, context.seed + 1))
        baseline.run()
    baseline.feed(inputs)


def _run_here(baseline: Baseline) -> tuple[float, list[Array]]:
    started = time.perf_counter()
    outputs = baseline.run()
    return time.perf_counter() - started, outputs


def _take_turn(run: _Run, turn: BaselineTurn) -> BaselineTimes:
    start = time.perf_counter()
    while time.perf_counter() - start < turn.warm_seconds:
        run()
    times: list[float] = []
    outputs: list[Array] = []
    begun = time.perf_counter()
    with DenormalsWatch() as denormals:
        while not times or (len(times) < turn.runs and time.perf_counter() - begun < turn.seconds):
            seconds, outputs = run()
            times.append(seconds * 1e3)
    if turn.outputs is not None:
        save_outputs(Path(turn.outputs), outputs)
    return BaselineTimes(tuple(times), denormals.met)


def _profile(network: KintuneExecutable, turn: ProfileTurn) -> KernelTimes:
    network.profile(turn.threads)  # untimed: threads start, caches fill
    found: dict[int, list[float]] = {}
    runs: list[list[KernelTime]] = []
    begun = time.perf_counter()
    for number in range(turn.runs):
        if number and time.perf_counter() - begun >= turn.seconds:
            break
        runs.append(network.profile(turn.threads))
        for call in runs[-1]:
            found.setdefault(call.place, []).append(call.us)
    usual = sorted(runs, key=lambda run: sum(call.us for call in run))[len(runs) // 2]
    return KernelTimes(
        {place: statistics.median(times) for place, times in found.items()},
        tuple((call.place, call.start_us, call.us) for call in usual),
    )


if __name__ == "__main__":
    main()
