"""Whether an executable is as fast as onnxruntime on the model that it was made of: both are timed in turns.

Times of different minutes do not compare on a machine that others use as well.  So each round times both, one after
the other, and its two medians give one ratio; the result is the median of these.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from kintune.core.paired_ratio import PairedRatio
from kintune.core.quantiles import quantile
from kintune.errors import EngineError, InputError
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import KINTUNE
from kintune.wire.worker_client import WorkerRefused

__all__ = ["BASELINE", "LatencyCheck", "check_latency"]

BASELINE = "onnxruntime"
"""The runtime with which the executable is compared."""

_TURN = BaselineTurn(runs=50, seconds=0.25, warm_seconds=0.02)
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 200
_TIMES = 2  # that both are timed at most
_PREPARE_SECONDS = 300.0
_TURN_SECONDS = 120.0

StartTimed = Callable[[str, BaselineContext], BaselineProcess]


class LatencyCheck(msgspec.Struct, frozen=True):
    """Medians of all runs in milliseconds, and the ratio of the first to the second.

    `ratio` is the median of the ratios of so many `rounds`, `low` and `high` are their quantiles 0.1 and 0.9.
    `interval` holds the true median (see `PairedRatio`), `allowed` is the largest ratio that passes.
    """

    kintune_ms: float
    onnxruntime_ms: float
    ratio: float
    low: float
    high: float
    rounds: int
    interval: PairedRatio
    allowed: float

    @property
    def is_known(self) -> bool:
        """Whether the rounds tell if the ratio is above what is allowed."""
        return not self.interval.low <= self.allowed < self.interval.high

    @property
    def passed(self) -> bool:
        """Whether the ratio is not above what is allowed, as far as the rounds tell."""
        return self.interval.low <= self.allowed


def check_latency(
    context: BaselineContext,
    seconds: float,
    at_most: float = 1.0,
    slack_ms: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    start: StartTimed = BaselineProcess,
) -> LatencyCheck:
    """Times the executable and the ONNX file of `context.subject` for about so many seconds; `clock` tells seconds.

    The executable may take `at_most` times as long as onnxruntime, and `slack_ms` longer.  Where the rounds do not tell
    whether it takes more, both are timed for as long again.

    Raises:
        InputError: onnxruntime is missing, or cannot run such a model.
        EngineError: one of the two does not run.
    """
    times: dict[str, list[float]] = {KINTUNE: [], BASELINE: []}
    rounds: dict[str, list[float]] = {KINTUNE: [], BASELINE: []}
    with ExitStack() as stack:
        running = []
        for name in (KINTUNE, BASELINE):
            process = stack.enter_context(start(name, msgspec.structs.replace(context, rival=name)))
            try:
                process.prepare(_PREPARE_SECONDS)
            except EngineError as error:
                if isinstance(error, WorkerRefused) and error.wrong_input:
                    raise InputError(f"{name}: {error}") from error
                raise EngineError(f"{name} does not run: {error}") from error
            running.append(process)
        for _ in range(_TIMES):
            begun, before = clock(), len(rounds[KINTUNE])
            while (number := len(rounds[KINTUNE]) - before) < _LEAST_ROUNDS or (
                number < _MOST_ROUNDS and clock() - begun < seconds
            ):
                for process in running:
                    taken = process.turn(_TURN, _TURN_SECONDS)
                    times[process.name] += taken
                    rounds[process.name].append(statistics.median(taken))
                running.reverse()  # so that no order favours either
            found = _found(times, rounds, at_most, slack_ms)
            if found.is_known:
                break
    return found


def _found(
    times: Mapping[str, Sequence[float]], rounds: Mapping[str, Sequence[float]], at_most: float, slack_ms: float
) -> LatencyCheck:
    ratios = sorted(ours / max(theirs, 1e-9) for ours, theirs in zip(rounds[KINTUNE], rounds[BASELINE], strict=True))
    interval = PairedRatio.of(rounds[KINTUNE], rounds[BASELINE])
    theirs_ms = statistics.median(times[BASELINE])
    return LatencyCheck(
        kintune_ms=statistics.median(times[KINTUNE]),
        onnxruntime_ms=theirs_ms,
        ratio=interval.ratio,
        low=quantile(ratios, 0.1),
        high=quantile(ratios, 0.9),
        rounds=len(ratios),
        interval=interval,
        allowed=at_most + slack_ms / max(theirs_ms, 1e-9),
    )
