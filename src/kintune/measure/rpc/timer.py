"""Times one kernel on a board by the board's own clock, which leaves out the transfer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kintune.compiler.build import ENTRY
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.measure.timer import in_batches, medians_us

__all__ = ["RemoteKernelTimer"]

_FLUSH = "cache_flush_cpu_non_first_arg"


class RemoteKernelTimer:
    """Implements `kintune.measure.backend.BackendTimer`.

    With cold operands, all arguments but the first are flushed from the board's caches before every timed run: a stock
    server can do no more.  So outputs are cold, too, and times differ from those of a device worker on the same
    processor.  Each timing runs the kernel once more, untimed.
    """

    def __init__(self, device: Any) -> None:
        """`device` is the device of a session."""
        self._device = device

    def run(
        self, module: Any, arguments: Sequence[Any], weights: Sequence[Any], protocol: MeasurementProtocol
    ) -> float:
        """Runs the kernel and returns the seconds of a run."""
        return self._seconds(module, arguments, 1, _flush(weights, protocol))[0]

    def times_us(
        self,
        module: Any,
        arguments: Sequence[Any],
        weights: Sequence[Any],
        protocol: MeasurementProtocol,
        slow_us: float = math.inf,
        first_us: float = math.inf,
    ) -> tuple[float, ...]:
        """See `kintune.measure.timer.KernelTimer.times_us`; `first_us` is ignored."""
        del first_us
        flush = _flush(weights, protocol)
        if protocol.warmups > 1:
            self._seconds(module, arguments, protocol.warmups - 1, flush)
        estimate_s = self._seconds(module, arguments, 1, flush)[0]

        def batches(runs: int, repeats: int) -> tuple[float, ...]:
            return medians_us(self._seconds(module, arguments, runs * repeats, flush), runs)

        return in_batches(batches, protocol, estimate_s, slow_us)

    def _seconds(self, module: Any, arguments: Sequence[Any], runs: int, flush: str = "") -> Sequence[float]:
        timed = module.time_evaluator(ENTRY, self._device, number=1, repeat=runs, f_preproc=flush)
        return [float(seconds) for seconds in timed(*arguments).results]


def _flush(weights: Sequence[Any], protocol: MeasurementProtocol) -> str:
    """Returns the name of the function that is called before each run."""
    return _FLUSH if protocol.operands == "cold" and weights else ""
