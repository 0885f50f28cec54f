"""A contender's process: `python -m kintune.validate.baseline_worker --fd N`, started by a proof.

It runs one network with one runtime.  Nothing of any other runtime is ever loaded here, so that no thread pool,
allocator or setting of one can disturb another.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from kintune.errors import InputError, OrderError, WireError
from kintune.hardware.software import forbid_torch
from kintune.runtime.inputs import Array, arrange_inputs, draw_inputs, load_arranged
from kintune.validate.baseline_protocol import (
    CONTEST,
    BaselineContext,
    BaselineTimes,
    BaselineTurn,
    Order,
    PrepareBaseline,
)
from kintune.validate.baselines import KINTUNE, Baseline, make_baseline
from kintune.validate.noise import moved
from kintune.wire import worker_loop as worker

if TYPE_CHECKING:
    from kintune.validate.board_executable import BoardExecutable

__all__ = ["BaselineHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)

_Run: TypeAlias = Callable[[], tuple[float, list[Array]]]
"""Runs the network once; the seconds that took, and the outputs, valid until the next run."""


class BaselineHandler:
    """One contender: a `BaselineContext` to begin with, then a `PrepareBaseline`, then `BaselineTurn`s."""

    def __init__(self) -> None:
        self._contest: BaselineContext | None = None
        self._network: Baseline | BoardExecutable | None = None
        self._run: _Run | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Be told the contest."""
        if kind != CONTEST:
            raise WireError(f"a contender was asked for a stage of kind {kind!r}")
        self._contest = msgspec.msgpack.decode(context, type=BaselineContext)

    def item(self, payload: bytes) -> bytes:
        """Obey one order; InputError when this runtime cannot run the network."""
        match _ORDERS.decode(payload):
            case PrepareBaseline():
                self._run = self._prepare()
                return b""
            case BaselineTurn() as turn:
                if self._run is None:
                    raise OrderError("a contender was given a turn before it was prepared")
                self._feed(turn)
                return msgspec.msgpack.encode(_take(self._run, turn))

    def _prepare(self) -> _Run:
        if self._contest is None:
            raise OrderError("a contender was asked to prepare before it was told the contest")
        contest = self._contest
        os.sched_setaffinity(0, contest.cores)
        if contest.rival == KINTUNE:
            forbid_torch()
        rival = make_baseline(contest.rival, contest.exact)
        if reason := rival.unavailable(contest.subject):
            raise InputError(reason)
        inputs = _inputs(contest, contest.inputs)
        if contest.board and contest.subject.executable:
            from kintune.validate.board_executable import BoardExecutable

            board = BoardExecutable(contest.board)
            board.prepare(contest.subject.executable, contest.threads, inputs)
            self._network = board
            return board.run_timed
        rival.prepare(contest.subject, contest.threads, inputs)
        if contest.rival == KINTUNE and contest.exact:
            _leave_other_values(rival, contest, inputs)
        self._network = rival
        return partial(_run_here, rival)

    def _feed(self, turn: BaselineTurn) -> None:
        """Give the network the turn's own inputs, if it has any."""
        if self._contest is None or self._network is None or (turn.inputs is None and not turn.noise):
            return
        inputs = _inputs(self._contest, turn.inputs or self._contest.inputs)
        if turn.noise:
            self._network.disturb(turn.noise)
            inputs = {name: moved(array, (turn.noise, 1, i)) for i, (name, array) in enumerate(inputs.items())}
        self._network.feed(inputs)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the proof closes the channel."""
    worker.main(CONTEST, lambda _arguments: (b"", BaselineHandler()), argv)


def _inputs(contest: BaselineContext, path: str | None) -> dict[str, Array]:
    """The inputs in a file, or those of the contest's seed, in the model's order."""
    if path is None:
        arrays = arrange_inputs(contest.tensors, [draw_inputs(contest.tensors, contest.seed)])
    else:
        arrays = load_arranged(contest.tensors, path)
    return dict(zip((tensor.name for tensor in contest.tensors), arrays, strict=True))


def _leave_other_values(rival: Baseline, contest: BaselineContext, inputs: dict[str, Array]) -> None:
    """Run once on other inputs: what a wrong kernel does not write holds their values then, not the right ones."""
    with contextlib.suppress(Exception):  # such inputs may be senseless to the model
        rival.feed(draw_inputs(contest.tensors, contest.seed + 1))
        rival.run()
    rival.feed(inputs)


def _run_here(rival: Baseline) -> tuple[float, list[Array]]:
    started = time.perf_counter()
    outputs = rival.run()
    return time.perf_counter() - started, outputs


def _take(run: _Run, turn: BaselineTurn) -> BaselineTimes:
    start = time.perf_counter()
    while time.perf_counter() - start < turn.warm_seconds:
        run()
    times: list[float] = []
    outputs: list[Array] = []
    begun = time.perf_counter()
    while not times or (len(times) < turn.runs and time.perf_counter() - begun < turn.seconds):
        seconds, outputs = run()
        times.append(seconds * 1e3)
    if turn.outputs is not None:
        _save(Path(turn.outputs), outputs)
    return BaselineTimes(tuple(times))


def _save(path: Path, outputs: Sequence[Array]) -> None:
    """Write outputs by position; types that `.npz` does not know (bfloat16) as float32, which holds them exactly."""
    known = [np.asarray(o) if o.dtype.kind in "fiub" else o.astype(np.float32) for o in outputs]
    np.savez(path, allow_pickle=False, **{str(index): array for index, array in enumerate(known)})


if __name__ == "__main__":
    main()
