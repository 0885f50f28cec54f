"""Run one built candidate: is it right, and how long does it take?"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from kintune.core.measurement_protocol import OPERANDS, MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import DeviceError
from kintune.hardware.cores import pinned_to
from kintune.measure.agreement import disagreement, not_finite
from kintune.measure.arguments import ArgumentCache, Array, Clamped, KernelArguments
from kintune.measure.backend import HostBackend, MeasurementBackend
from kintune.measure.interference import CALM, InterferenceFilter
from kintune.measure.timer import check_plausible, says_enough

__all__ = ["CORRUPTED", "Runner"]

CORRUPTED = 86
"""Exit code of a worker whose memory, or device, cannot be trusted: its reference no longer computes what it did."""

_BUDGET = 1 << 30

_AGAIN_REPEATS = 3
"""Of candidates that were measured before: what they take has been looked at as often."""


class Runner:
    """Runs candidates on `cores`, one thread on each, or in another arena, and says what came of them.

    A candidate is native code of unknown quality.  What it can do short of killing the process is found out here:
    its output is compared with the reference's, twice (a race or a trick may be right once; what is hopelessly slow is
    run but once), after being poisoned; its inputs and the memory around all its arguments are checked; and after
    anything wrong, the buffers are replaced and the reference is run again: when even that is wrong now, the process
    ends, so that its successor starts clean.  It also ends when its hardware fails after a candidate failed.
    """

    def __init__(
        self,
        cores: Sequence[int],
        budget: int = _BUDGET,
        calm: InterferenceFilter | None = None,
        arena: MeasurementBackend | None = None,
        threads: int | None = None,
    ) -> None:
        """`budget` bounds the bytes kept from one candidate to the next; `calm` decides what is timed again.

        Without an `arena` candidates run on the cores themselves; with one, only the thread that starts them does.
        They have as many `threads` as there are cores, unless told otherwise.
        """
        self._cores = tuple(cores)
        self._threads = threads or len(self._cores)
        self._arena: MeasurementBackend = HostBackend(self._cores) if arena is None else arena
        self._stopwatch = self._arena.stopwatch()
        self._calm = calm or InterferenceFilter()
        self._benches = ArgumentCache(budget, self._arena.buffer)
        self._context: ProfileContext | None = None
        self._best_us: dict[str, float] = {}
        self._paced: set[str] = set()

    def begin(self, context: ProfileContext) -> None:
        """Enter a stage.

        Raises:
            DeviceError: its protocol asks for another number of threads, or operands this version does not know.
        """
        self._context = None
        if context.protocol.threads != self._threads:
            raise DeviceError(
                f"the protocol asks for {context.protocol.threads} threads, this worker has {self._threads}"
            )
        if context.protocol.operands not in OPERANDS:
            raise DeviceError(
                f"the protocol asks for {context.protocol.operands!r} operands: only {', '.join(OPERANDS)} exist"
            )
        self._arena.rouse()
        self._context = context
        self._best_us = dict(context.best_us)
        self._paced.clear()

    def release(self) -> None:
        """Let go of all buffers."""
        self._benches.clear()

    def profile(self, item: ProfileItem) -> Outcome:
        """Check and time one candidate.  What it does wrong is in the outcome; nothing is raised for it.

        Raises:
            DeviceError: no stage was begun.
        """
        if self._context is None:
            raise DeviceError("no stage was begun")
        if item.built.failure is not None:
            return item.built.failure
        bench = self._benches[item.workload]
        try:
            with pinned_to(self._cores[0]):
                self._reference(self._context, bench, item.workload)
                if math.isinf(self._context.slow):  # not one of many that cannot win: its time decides
                    self._arena.gather()
                if self._is_slow_reference(self._context, bench, item):
                    return Outcome(Status.OK, times_us=(1e6 * bench.reference_s,))
                best_us = self._best_us.get(item.workload, math.inf)
                again = item.built.candidate in self._context.again
                slow_us = math.inf if again else self._context.slow * best_us
                outcome = self._check_and_time(self._context, bench, item.built, slow_us, again=again)
                if outcome.ok:
                    self._pace(item.workload, outcome.median_us, again=again)
                else:
                    bench.discard_buffers()
                if outcome.status is Status.WRONG_RESULT:
                    self._end_if_corrupted(self._context, bench, item.workload)
        except DeviceError as error:
            bench.discard_buffers()
            outcome = Outcome(Status.RUN_FAILED, cause=str(error))
        except Exception as error:  # whatever a kernel, the loader or the runtime raises is this candidate's end
            self._end_if_broken()
            bench.discard_buffers()
            outcome = Outcome(Status.RUN_FAILED, cause=_one_line(error))
        self._benches.trim()
        return outcome

    def _pace(self, workload: str, time_us: float, *, again: bool) -> None:
        """What is slow is known by the fastest; one that was known before says how fast that is at present."""
        if again and workload not in self._paced:
            self._best_us[workload] = time_us
            self._paced.add(workload)
        else:
            self._best_us[workload] = min(self._best_us.get(workload, math.inf), time_us)

    def _check_and_time(
        self, context: ProfileContext, bench: KernelArguments, built: Built, slow_us: float, *, again: bool
    ) -> Outcome:
        protocol = context.protocol
        if again:
            protocol = msgspec.structs.replace(protocol, repeats=min(_AGAIN_REPEATS, protocol.repeats))
        module = self._arena.load(built.artifact)
        clamped = bench.clamp(built.operands)
        bench.poison(clamped.outputs)
        first_s, calm = self._first_run(module, clamped, protocol)
        bench.collect()
        if wrong := _differences(context, bench, clamped.outputs):
            return Outcome(Status.WRONG_RESULT, cause=bench.damage(built.operands) or wrong)
        if says_enough(first_s, protocol, slow_us):
            if wrong := bench.damage(built.operands):
                return Outcome(Status.WRONG_RESULT, cause=wrong)
            return Outcome(Status.OK, times_us=(1e6 * first_s,))
        bench.poison(clamped.outputs)
        repeated = self._calm.repeated
        times = self._calm.timed(
            lambda: self._stopwatch.times_us(
                module,
                clamped.arguments,
                clamped.weights,
                protocol,
                slow_us,
                1e6 * first_s if calm else math.inf,
            )
        )
        bench.collect()
        if wrong := bench.damage(built.operands) or _differences(context, bench, clamped.outputs):
            return Outcome(Status.WRONG_RESULT, cause=f"{wrong} (right at first)")
        check_plausible(times, sum(output.nbytes for output in clamped.outputs), self._arena.stores_per_s)
        return Outcome(Status.OK, times_us=times, repeated=self._calm.repeated - repeated)

    def _first_run(self, module: Any, clamped: Clamped, protocol: MeasurementProtocol) -> tuple[float, bool]:
        """Run a kernel that has not been run yet; seconds that the first run that says anything took, and if in calm.

        Its operands are as cold as the protocol wants them, so that it says something of the kernel's speed.
        Of a disturbed run these are the seconds in which no thread waited for a core: it takes that at least.
        """

        def run() -> float:
            return self._stopwatch.run(module, clamped.arguments, clamped.weights, protocol)

        if self._arena.loads_late:
            run()
        waiting, seconds = self._calm.waiting(run)
        return (seconds, True) if waiting <= CALM else (seconds * max(0.0, 1.0 - waiting), False)

    def _reference(self, context: ProfileContext, bench: KernelArguments, workload: str) -> None:
        """Know what is expected of the workload's candidates: run its reference, unless that was done before."""
        if bench.expected is None and workload in context.references:
            reference = context.references[workload]
            bench.expected, bench.reference_s = self._run_reference(bench, reference, context.protocol)
            bench.scratch = tuple(np.empty_like(array) for array in bench.expected)

    def _is_slow_reference(self, context: ProfileContext, bench: KernelArguments, item: ProfileItem) -> bool:
        """Whether the item is the reference itself, of which one run says enough: it has had that."""
        reference = context.references.get(item.workload)
        own = reference is not None and reference.candidate == item.built.candidate
        return own and says_enough(bench.reference_s, context.protocol)

    def _run_reference(
        self, bench: KernelArguments, reference: Built, protocol: MeasurementProtocol
    ) -> tuple[tuple[Array, ...], float]:
        """Its outputs, and the seconds of its run, or that it took at least."""
        if reference.failure is not None:
            raise DeviceError(f"no reference: {reference.failure.cause}")
        module = self._arena.load(reference.artifact)
        clamped = bench.clamp(reference.operands)
        seconds, _ = self._first_run(module, clamped, protocol)
        bench.collect()
        return tuple(output.copy() for output in clamped.outputs), seconds

    def _end_if_corrupted(self, context: ProfileContext, bench: KernelArguments, workload: str) -> None:
        """End the process when the reference, run again in fresh buffers, does not repeat itself to the bit."""
        if bench.expected is None:
            return
        again, _ = self._run_reference(bench, context.references[workload], context.protocol)
        if any(a.tobytes() != e.tobytes() for a, e in zip(again, bench.expected, strict=True)):
            _end("a candidate corrupted this process")

    def _end_if_broken(self) -> None:
        """End the process when its hardware cannot be used any more: a GPU that a kernel failed on is lost to it."""
        try:
            self._arena.finish()
        except Exception as error:  # of the runtime's own kinds
            _end(f"a candidate broke this process's device ({_one_line(error)})")


def _end(why: str) -> None:
    sys.stderr.write(f"kintune: {why}; ending it\n")
    sys.stderr.flush()
    os._exit(CORRUPTED)


def _differences(context: ProfileContext, bench: KernelArguments, outputs: Sequence[Array]) -> str:
    """How outputs differ from what is expected, as one line; without a reference, whether they are finite."""
    if bench.expected is None:
        return next(filter(None, map(not_finite, outputs)), "")
    triples = zip(outputs, bench.expected, bench.scratch, strict=True)
    return next(filter(None, (disagreement(a, e, context.rtol, context.atol, s) for a, e, s in triples)), "")


def _one_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    return f"{name}: {text}"[:300] if text else name
