"""Times one kernel under a measurement protocol."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from kintune.compiler.build import ENTRY
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.errors import DeviceError
from kintune.runtime.tvm_state import function_registered

__all__ = ["FlushingBackend", "KernelTimer", "check_plausible", "in_batches", "is_decided", "medians_us"]

_FLUSH = "kintune.measure.flush_weights"
_SHORT_S = 1e-3
"""Shorter runs are timed inside the runtime: the microsecond of a call from Python would show in their times."""

_BATCH_S = 500e-6
"""One repeat of a short kernel is the median of as many runs as fill this time: one run of 5 us is mostly noise."""

_SCREENING_BATCH_S = 300e-6
"""The same where slow candidates are given up early: those that may win are timed once more later."""

_BATCH_RUNS = 64
_START_US = 200.0
"""Waking threads and touching pages for the first time cost a first run no more than this.  A kernel whose first run
exceeds `slow_us` by more is not run again."""

_INFORMATIVE_US = 300.0
"""A first run of at least this many microseconds tells a kernel's speed as well as a later one does."""

_MARGINS = (1.0, 0.8, 0.785)
"""A kernel is given up when the least of its first one, two, three times exceeds this times `slow_us`."""


class FlushingBackend(Protocol):
    """A backend whose caches this process can flush."""

    device: Any
    """The compiler's device."""

    def flush_to_memory(self, *tensors: Any) -> None:
        """Flushes these tensors from all caches."""
        ...

    def flush_to_last_level(self, tensors: Sequence[Any]) -> None:
        """Flushes everything but these tensors from the cores' own caches, to the last-level cache that they share."""
        ...

    def finish(self) -> None:
        """Waits for everything that was started there.

        Raises:
            Exception: of the runtime's own kinds, when something of it failed.
        """
        ...


class KernelTimer:
    """Times kernels.  Only one timer may run at once in a process: meanwhile a global function is its own."""

    def __init__(self, backend: FlushingBackend, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` tells seconds; it times the runs that are not timed inside the runtime."""
        self._backend = backend
        self._clock = clock
        self._prepare: Callable[[], None] | None = None

    def run(
        self, module: Any, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> float:
        """Runs once, with `weights` flushed as the protocol asks, and returns the seconds."""
        self._prepare = self._preparation(arguments, weights, protocol)
        return self._once(module[ENTRY], arguments)

    def times_us(
        self,
        module: Any,
        arguments: Sequence[Any],
        weights: Sequence[Any],
        protocol: MeasurementProtocol,
        slow_us: float = math.inf,
        first_us: float = math.inf,
    ) -> tuple[float, ...]:
        """Returns microseconds, one entry a repeat, of a kernel that has already run once, for `first_us`.

        Before every timed run `weights` (some of `arguments`) are flushed to memory (cold operands) or to the
        last-level cache (cool operands).  Runs are timed one by one, since runs in a row would warm the weights.
        Repeats end once `max_seconds` is spent.  They also end after the first, second or third one if the kernel is
        clearly slower than `slow_us`; the earlier run counts as one of these three where it is long enough.
        """
        kernel = module[ENTRY]
        self._prepare = self._preparation(arguments, weights, protocol)
        for _ in range(protocol.warmups - 1):
            self._once(kernel, arguments)
        deadline = self._clock() + protocol.max_seconds
        seen = (first_us,) if _INFORMATIVE_US <= first_us < math.inf else ()
        seconds = 1e-6 * first_us if seen and first_us < 1e6 * _SHORT_S else self._once(kernel, arguments)
        if seconds < _SHORT_S:

            def batches(runs: int, repeats: int) -> tuple[float, ...]:
                return self._batches(module, arguments, runs, repeats)

            return in_batches(batches, protocol, seconds, slow_us, seen)
        return self._long(kernel, arguments, protocol, 1e6 * seconds, deadline, slow_us, seen)

    def _long(
        self,
        kernel: Any,
        arguments: Sequence[Any],
        protocol: MeasurementProtocol,
        repeat_us: float,
        deadline: float,
        slow_us: float,
        seen: tuple[float, ...],
    ) -> tuple[float, ...]:
        """Returns the first time and those of further repeats, until the deadline or until the kernel is slow."""
        times: tuple[float, ...] = (repeat_us,)
        while len(times) < protocol.repeats and self._clock() < deadline and not _is_slow(seen + times, slow_us):
            times += (1e6 * self._once(kernel, arguments),)
        return times

    def _once(self, kernel: Any, arguments: Sequence[Any]) -> float:
        """Flushes and runs once; returns the seconds of the run."""
        self._flush()
        return self._run(kernel, arguments)

    def _run(self, kernel: Any, arguments: Sequence[Any]) -> float:
        start = self._clock()
        kernel(*arguments)
        self._backend.finish()
        return self._clock() - start

    def _batches(self, module: Any, arguments: Sequence[Any], runs: int, repeats: int) -> tuple[float, ...]:
        """Returns the medians of `repeats` batches of single runs, timed inside the runtime."""
        preparation = _FLUSH if self._prepare else ""
        with function_registered(_FLUSH, self._flush):
            evaluator = module.time_evaluator(
                ENTRY, self._backend.device, number=1, repeat=runs * repeats, f_preproc=preparation
            )
            return medians_us(evaluator(*arguments).results, runs)

    def _flush(self, *_arguments: Any) -> None:
        if self._prepare:
            self._prepare()

    def _preparation(
        self, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> Callable[[], None] | None:
        """Returns the flush before each run; None where there is none."""
        if not weights or protocol.operands == "warm":
            return None
        if protocol.operands == "cold":
            return partial(self._backend.flush_to_memory, *weights)
        others = tuple(tensor for tensor in arguments if not any(tensor is weight for weight in weights))
        return partial(self._backend.flush_to_last_level, others)


def in_batches(
    batches: Callable[[int, int], tuple[float, ...]],
    protocol: MeasurementProtocol,
    estimate_s: float,
    slow_us: float,
    seen: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Returns microseconds, one entry a repeat, of a kernel that takes `estimate_s`; see `KernelTimer.times_us`.

    `batches(runs, repeats)` times `repeats` batches of `runs` runs each and returns their medians; `seen` are
    microseconds of earlier runs.
    """
    batch_s = _BATCH_S if math.isinf(slow_us) else _SCREENING_BATCH_S
    runs = min(_BATCH_RUNS, max(1, math.ceil(batch_s / max(estimate_s, 1e-9))))
    repeats = max(1, min(protocol.repeats, int(protocol.max_seconds / (runs * max(estimate_s, 1e-9)))))
    if math.isinf(slow_us):
        return batches(runs, repeats)
    times: tuple[float, ...] = ()
    for wanted in (*range(1, 1 + len(_MARGINS)), repeats):
        if len(times) < min(wanted, repeats) and not (times and _is_slow(seen + times, slow_us)):
            times += batches(runs, min(wanted, repeats) - len(times))
    return times


def medians_us(seconds: Sequence[float], runs: int) -> tuple[float, ...]:
    """Returns the median of each batch of `runs` runs, in microseconds."""
    return tuple(1e6 * statistics.median(seconds[i : i + runs]) for i in range(0, len(seconds), runs))


def _is_slow(times_us: Sequence[float], slow_us: float) -> bool:
    """Returns whether the least of the times so far exceeds `slow_us` times the margin for so many times."""
    return min(times_us) > _MARGINS[min(len(times_us), len(_MARGINS)) - 1] * slow_us


def is_decided(first_s: float, protocol: MeasurementProtocol, slow_us: float = math.inf) -> bool:
    """Returns whether a kernel's first run, of `first_s` seconds, decides its time.

    It does when it took all the seconds of a measurement, or so much longer than `slow_us` that no later run can win.
    """
    return first_s >= protocol.max_seconds or 1e6 * first_s > slow_us + _START_US


def check_plausible(times_us: Sequence[float], bytes_written: int, stores_per_s: float) -> None:
    """Refuses times that no program can have.

    Raises:
        DeviceError: a time is zero or not finite, or too short to store `bytes_written` at `stores_per_s`.
    """
    least = max(1e-3, 1e6 * bytes_written / stores_per_s)
    for t in times_us:
        if not (math.isfinite(t) and t >= least):
            raise DeviceError(
                f"zero time: {t:.3g} us for {bytes_written} bytes of output, which take {least:.3g} us to store"
            )
