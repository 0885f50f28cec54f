"""Whether an executable is as fast as onnxruntime on the model that it was made of: both are timed in turns.

Times of different minutes do not compare on a machine that others use as well.  So each round times both, one after
the other, and its two medians give one ratio; the result is the median of these.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import msgspec

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
_PREPARE_SECONDS = 300.0
_TURN_SECONDS = 120.0

StartTimed = Callable[[str, BaselineContext], BaselineProcess]


class LatencyCheck(msgspec.Struct, frozen=True):
    """Medians of all runs in milliseconds, and the ratio of the first to the second.

    `ratio` is the median of the ratios of so many `rounds`, `low` and `high` are their quantiles 0.1 and 0.9.
    """

    kintune_ms: float
    onnxruntime_ms: float
    ratio: float
    low: float
    high: float
    rounds: int


def check_latency(
    context: BaselineContext,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    start: StartTimed = BaselineProcess,
) -> LatencyCheck:
    """Times the executable and the ONNX file of `context.subject` for about so many seconds; `clock` tells seconds.

    Raises:
        InputError: onnxruntime is missing, or cannot run such a model.
        EngineError: one of the two does not run.
    """
    times: dict[str, list[float]] = {KINTUNE: [], BASELINE: []}
    ratios: list[float] = []
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
        begun = clock()
        while len(ratios) < _LEAST_ROUNDS or (len(ratios) < _MOST_ROUNDS and clock() - begun < seconds):
            medians = {}
            for process in running:
                taken = process.turn(_TURN, _TURN_SECONDS)
                times[process.name] += taken
                medians[process.name] = statistics.median(taken)
            ratios.append(medians[KINTUNE] / max(medians[BASELINE], 1e-9))
            running.reverse()  # so that no order favours either
    ratios.sort()
    return LatencyCheck(
        kintune_ms=statistics.median(times[KINTUNE]),
        onnxruntime_ms=statistics.median(times[BASELINE]),
        ratio=statistics.median(ratios),
        low=quantile(ratios, 0.1),
        high=quantile(ratios, 0.9),
        rounds=len(ratios),
    )
