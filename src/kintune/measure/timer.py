"""Times one kernel under a protocol: the only code below the engine that reads a clock to judge a program."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from typing import Protocol as Shape

import tvm_ffi

from kintune.compiler.build import ENTRY
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.errors import DeviceError

__all__ = ["KernelTimer", "Venue", "check_plausible", "in_batches", "medians_us", "says_enough"]


_FLUSH = "kintune.measure.flush_weights"

_SHORT_S = 1e-3
"""Below this, the microsecond of a call from Python would be seen in the time: runs are timed inside the runtime."""

_BATCH_S = 500e-6
"""One repeat of a short kernel is the median of as many runs as fill this, since one run of 5 us is mostly luck ..."""

_RACE_BATCH_S = 300e-6
"""... but in a race, where those that may win are timed once more at its end."""

_BATCH_RUNS = 64

_START_US = 200.0
"""A first run that takes this much longer than what is slow already is not repeated at all: threads had to be woken and
pages were touched for the first time, but no longer than this."""

_COUNTS_US = 300.0
"""A first run of this many microseconds says as much of a kernel as a later one does."""

_MARGINS = (1.0, 0.8, 0.785)
"""What takes longer than this times `slow_us` once, twice, three times is not timed again."""


class Venue(Shape):
    """Where this process runs kernels."""

    device: Any
    """The compiler's device."""

    def evict(self, *tensors: Any) -> None:
        """Send these tensors out of all caches."""
        ...

    def sweep(self, tensors: Sequence[Any]) -> None:
        """Send everything but these tensors out of the cores' own caches, as far as the one that they share."""
        ...

    def finish(self) -> None:
        """Return when everything that was started there is done; raises whatever the runtime raises when it is not."""
        ...


class KernelTimer:
    """Times kernels.  Only one may be in use in a process, from one thread: the flush is a function of the runtime."""

    def __init__(self, venue: Venue, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` tells seconds, for runs that are timed from here."""
        self._venue = venue
        self._clock = clock
        self._prepare: Callable[[], None] | None = None
        tvm_ffi.register_global_func(_FLUSH, self._flush, override=True)

    def run(
        self, module: Any, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> float:
        """Run once, with `weights` as cold as the protocol wants them; seconds it took, as seen from here."""
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
        """Microseconds of a run, one entry a repeat, of a kernel that has already run once, for `first_us`.

        Before every timed run `weights` (some of `arguments`) are sent out of all caches, with cold operands, or as far
        as the last one, with cool ones.  Each timed run is a single one: runs in a row would warm them.  Repeats end
        once `max_seconds` is spent, after the first one if that took longer than `slow_us`, and after the second and
        third if all were not much better: the rest are for those that may win.  That first run, which is not among the
        answers, counts for one of these three where it is long enough to say something.
        """
        kernel = module[ENTRY]
        self._prepare = self._preparation(arguments, weights, protocol)
        for _ in range(protocol.warmups - 1):
            self._once(kernel, arguments)
        deadline = self._clock() + protocol.max_seconds
        seen = (first_us,) if _COUNTS_US <= first_us < math.inf else ()
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
        """The first repeat, and as many more as are worth it before the deadline."""
        times: tuple[float, ...] = (repeat_us,)
        while len(times) < protocol.repeats and self._clock() < deadline and not _has_lost(seen + times, slow_us):
            times += (1e6 * self._once(kernel, arguments),)
        return times

    def _once(self, kernel: Any, arguments: Sequence[Any]) -> float:
        """Run once with the weights where they should be; seconds it took."""
        self._flush()
        return self._run(kernel, arguments)

    def _run(self, kernel: Any, arguments: Sequence[Any]) -> float:
        start = self._clock()
        kernel(*arguments)
        self._venue.finish()
        return self._clock() - start

    def _batches(self, module: Any, arguments: Sequence[Any], runs: int, repeats: int) -> tuple[float, ...]:
        """The medians of `repeats` batches of single runs, timed inside the runtime."""
        evaluator = module.time_evaluator(
            ENTRY, self._venue.device, number=1, repeat=runs * repeats, f_preproc=_FLUSH if self._prepare else ""
        )
        return medians_us(evaluator(*arguments).results, runs)

    def _flush(self, *_arguments: Any) -> None:
        if self._prepare:
            self._prepare()

    def _preparation(
        self, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> Callable[[], None] | None:
        """What is done before each run; None where nothing is."""
        if not weights or protocol.operands == "warm":
            return None
        if protocol.operands == "cold":
            return partial(self._venue.evict, *weights)
        others = tuple(tensor for tensor in arguments if not any(tensor is weight for weight in weights))
        return partial(self._venue.sweep, others)


def in_batches(
    batches: Callable[[int, int], tuple[float, ...]],
    protocol: MeasurementProtocol,
    estimate_s: float,
    slow_us: float,
    seen: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Microseconds of a run, one entry a repeat, of a kernel that takes `estimate_s`; see `KernelTimer.times_us`.

    `batches(runs, repeats)` gives the medians of so many batches of so many runs each; `seen` are microseconds of
    earlier runs.
    """
    batch_s = _BATCH_S if math.isinf(slow_us) else _RACE_BATCH_S
    runs = min(_BATCH_RUNS, max(1, math.ceil(batch_s / max(estimate_s, 1e-9))))
    repeats = max(1, min(protocol.repeats, int(protocol.max_seconds / (runs * max(estimate_s, 1e-9)))))
    if math.isinf(slow_us):
        return batches(runs, repeats)
    times: tuple[float, ...] = ()
    for wanted in (*range(1, 1 + len(_MARGINS)), repeats):
        if len(times) < min(wanted, repeats) and not (times and _has_lost(seen + times, slow_us)):
            times += batches(runs, min(wanted, repeats) - len(times))
    return times


def medians_us(seconds: Sequence[float], runs: int) -> tuple[float, ...]:
    """The median of each batch of so many runs, in microseconds."""
    return tuple(1e6 * statistics.median(seconds[i : i + runs]) for i in range(0, len(seconds), runs))


def _has_lost(times_us: Sequence[float], slow_us: float) -> bool:
    """Whether what was timed so far is enough to know that the kernel is none of the fastest."""
    return min(times_us) > _MARGINS[min(len(times_us), len(_MARGINS)) - 1] * slow_us


def says_enough(first_s: float, protocol: MeasurementProtocol, slow_us: float = math.inf) -> bool:
    """Whether a kernel's very first run, of `first_s` seconds, is all that needs to be known of its speed.

    It took all the seconds that a measurement may, or so much longer than `slow_us` that nothing can make up for it.
    """
    return first_s >= protocol.max_seconds or 1e6 * first_s > slow_us + _START_US


def check_plausible(times_us: Sequence[float], bytes_written: int, stores_per_s: float) -> None:
    """Refuse times that no program can have.

    Raises:
        DeviceError: a time is zero or not finite, or too short for `bytes_written` to be stored, so many a second.
    """
    least = max(1e-3, 1e6 * bytes_written / stores_per_s)
    for t in times_us:
        if not (math.isfinite(t) and t >= least):
            raise DeviceError(
                f"zero time: {t:.3g} us for {bytes_written} bytes of output, which take {least:.3g} us to store"
            )
