"""Runs built candidates: checks their outputs and times them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from kintune.core.candidate import FULL_PRECISION
from kintune.core.measurement_protocol import OPERANDS, MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import DeviceError
from kintune.hardware.amx import permit_amx
from kintune.hardware.cores import pinned_to
from kintune.measure.agreement import disagreement, narrow_disagreement, not_finite
from kintune.measure.arguments import ArgumentCache, Array, BoundArguments, KernelArguments
from kintune.measure.backend import HostBackend, MeasurementBackend
from kintune.measure.interference import MAX_WAITING, InterferenceFilter
from kintune.measure.timer import check_plausible, is_decided
from kintune_runtime.denormals import Flushing

__all__ = ["CORRUPTED", "Runner"]

CORRUPTED = 86
"""Exit code of a worker whose memory or device a candidate has corrupted: its reference computes something else."""

_BUDGET = 1 << 30
_TILES = "amxtile"
_AGAIN_REPEATS = 3
"""Repeats of a candidate that was measured before."""


class Runner:
    """Checks and times candidates on `cores`, one thread on each, or on another backend.

    A candidate is native code of unknown quality.  Its output buffers are poisoned, and its outputs are compared with
    the reference's twice: a data race may be right once.  A hopelessly slow candidate runs only once.  Its inputs and
    the memory around all its arguments are checked.  After a wrong result the buffers are replaced and the reference
    runs again; if its outputs changed, the process ends, so that its successor starts clean.  The process also ends
    when the hardware fails after a candidate failed.
    """

    def __init__(
        self,
        cores: Sequence[int],
        budget: int = _BUDGET,
        interference: InterferenceFilter | None = None,
        backend: MeasurementBackend | None = None,
        threads: int | None = None,
    ) -> None:
        """`budget` bounds the bytes kept from one candidate to the next; `interference` decides what is timed again.

        Without a `backend` candidates run on the cores; with one, only the thread that starts them does.  They have as
        many `threads` as there are cores, unless another number is given.
        """
        self._cores = tuple(cores)
        self._threads = threads or len(self._cores)
        self._backend: MeasurementBackend = HostBackend(self._cores) if backend is None else backend
        self._timer = self._backend.timer()
        self._interference = interference or InterferenceFilter()
        self._cache = ArgumentCache(budget, self._backend.buffer)
        self._context: ProfileContext | None = None
        self._best_us: dict[str, float] = {}
        self._updated: set[str] = set()

    def begin(self, context: ProfileContext) -> None:
        """Begins a stage.

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
        self._backend.set_denormals(not context.keep_denormals)
        self._backend.warm_up()
        self._context = context
        self._best_us = dict(context.best_us)
        self._updated.clear()

    def release(self) -> None:
        """Frees all buffers."""
        self._cache.clear()

    def profile(self, item: ProfileItem) -> Outcome:
        """Checks and times one candidate.  Its failures are in the outcome and are not raised.

        Raises:
            DeviceError: no stage was begun.
        """
        if self._context is None:
            raise DeviceError("no stage was begun")
        if item.built.failure is not None:
            return item.built.failure
        arguments = self._cache[item.workload]
        try:
            with pinned_to(self._cores[0]), Flushing(not self._context.keep_denormals):
                self._reference(self._context, arguments, item.workload)
                if math.isinf(self._context.slow):  # it is not one of many candidates to be screened: its time counts
                    self._backend.wait_for_locality()
                if self._is_slow_reference(self._context, arguments, item):
                    return Outcome(Status.OK, times_us=(1e6 * arguments.reference_s,))
                best_us = self._best_us.get(item.workload, math.inf)
                again = item.built.candidate in self._context.again
                slow_us = math.inf if again else self._context.slow * best_us
                outcome = self._check_and_time(self._context, arguments, item.built, slow_us, again=again)
                if outcome.ok:
                    self._update_best(item.workload, outcome.median_us, again=again)
                else:
                    arguments.discard_buffers()
                if outcome.status is Status.WRONG_RESULT:
                    self._end_if_corrupted(self._context, arguments, item.workload)
        except DeviceError as error:
            arguments.discard_buffers()
            outcome = Outcome(Status.RUN_FAILED, cause=str(error))
        except Exception as error:  # of any kind: a kernel, the loader or the runtime raised it
            self._end_if_broken()
            arguments.discard_buffers()
            outcome = Outcome(Status.RUN_FAILED, cause=_one_line(error))
        self._cache.trim()
        return outcome

    def _update_best(self, workload: str, time_us: float, *, again: bool) -> None:
        """Updates the fastest time of the workload, by which slow candidates are known.

        The first candidate that was measured before replaces it: its time is the fastest one's at present.
        """
        if again and workload not in self._updated:
            self._best_us[workload] = time_us
            self._updated.add(workload)
        else:
            self._best_us[workload] = min(self._best_us.get(workload, math.inf), time_us)

    def _check_and_time(
        self, context: ProfileContext, arguments: KernelArguments, built: Built, slow_us: float, *, again: bool
    ) -> Outcome:
        if _TILES in built.instructions and not permit_amx():
            raise DeviceError("uses AMX, which the kernel of this system does not permit")
        protocol = context.protocol
        if again:
            protocol = msgspec.structs.replace(protocol, repeats=min(_AGAIN_REPEATS, protocol.repeats))
        module = self._backend.load(built.artifact)
        bound = arguments.bind(built.operands)
        arguments.poison(bound.outputs)
        first_s, undisturbed = self._first_run(module, bound, protocol)
        arguments.collect()
        if wrong := _differences(context, arguments, bound.outputs, built.precision):
            return Outcome(Status.WRONG_RESULT, cause=arguments.damage(built.operands) or wrong)
        if is_decided(first_s, protocol, slow_us):
            if wrong := arguments.damage(built.operands):
                return Outcome(Status.WRONG_RESULT, cause=wrong)
            return Outcome(Status.OK, times_us=(1e6 * first_s,))
        arguments.poison(bound.outputs)
        repeated = self._interference.repeated
        times = self._interference.timed(
            lambda: self._timer.times_us(
                module,
                bound.arguments,
                bound.weights,
                protocol,
                slow_us,
                1e6 * first_s if undisturbed else math.inf,
            )
        )
        arguments.collect()
        if wrong := arguments.damage(built.operands) or _differences(
            context, arguments, bound.outputs, built.precision
        ):
            return Outcome(Status.WRONG_RESULT, cause=f"{wrong} (right at first)")
        check_plausible(times, sum(output.nbytes for output in bound.outputs), self._backend.stores_per_s)
        return Outcome(Status.OK, times_us=times, repeated=self._interference.repeated - repeated)

    def _first_run(self, module: Any, bound: BoundArguments, protocol: MeasurementProtocol) -> tuple[float, bool]:
        """Runs a kernel for the first time; returns the seconds of the run, and whether it was undisturbed.

        Its operands are flushed as the protocol asks.  Of a disturbed run only the seconds in which no thread waited
        for a core count: a lower bound of its time.
        """

        def run() -> float:
            return self._timer.run(module, bound.arguments, bound.weights, protocol)

        if self._backend.loads_late:
            run()
        waiting, seconds = self._interference.waiting(run)
        return (seconds, True) if waiting <= MAX_WAITING else (seconds * max(0.0, 1.0 - waiting), False)

    def _reference(self, context: ProfileContext, arguments: KernelArguments, workload: str) -> None:
        """Runs the workload's reference for the expected outputs, unless that was done before."""
        if arguments.expected is None and workload in context.references:
            reference = context.references[workload]
            arguments.expected, arguments.reference_s = self._run_reference(arguments, reference, context.protocol)
            arguments.scratch = tuple(np.empty_like(array) for array in arguments.expected)

    def _is_slow_reference(self, context: ProfileContext, arguments: KernelArguments, item: ProfileItem) -> bool:
        """Returns whether the item is the reference itself, and the run that it has had decides its time."""
        reference = context.references.get(item.workload)
        own = reference is not None and reference.candidate == item.built.candidate
        return own and is_decided(arguments.reference_s, context.protocol)

    def _run_reference(
        self, arguments: KernelArguments, reference: Built, protocol: MeasurementProtocol
    ) -> tuple[tuple[Array, ...], float]:
        """Returns the reference's outputs, and the seconds of its run or a lower bound of them.

        Raises:
            DeviceError: the reference was not built.
        """
        if reference.failure is not None:
            raise DeviceError(f"no reference: {reference.failure.cause}")
        module = self._backend.load(reference.artifact)
        bound = arguments.bind(reference.operands)
        seconds, _ = self._first_run(module, bound, protocol)
        arguments.collect()
        return tuple(output.copy() for output in bound.outputs), seconds

    def _end_if_corrupted(self, context: ProfileContext, arguments: KernelArguments, workload: str) -> None:
        """Ends the process when the reference, run again in fresh buffers, does not give the same bits."""
        if arguments.expected is None:
            return
        again, _ = self._run_reference(arguments, context.references[workload], context.protocol)
        if any(a.tobytes() != e.tobytes() for a, e in zip(again, arguments.expected, strict=True)):
            _end("a candidate corrupted this process")

    def _end_if_broken(self) -> None:
        """Ends the process when its hardware is unusable, as a GPU is to a process in which a kernel failed."""
        try:
            self._backend.finish()
        except Exception as error:  # of the runtime's own kinds
            _end(f"a candidate broke this process's device ({_one_line(error)})")


def _end(why: str) -> None:
    sys.stderr.write(f"kintune: {why}; ending it\n")
    sys.stderr.flush()
    os._exit(CORRUPTED)


def _differences(context: ProfileContext, arguments: KernelArguments, outputs: Sequence[Array], precision: str) -> str:
    """Describes in one line how outputs differ from the expected ones; without a reference, which are not finite.

    Outputs of a candidate that computes with shorter numbers are compared by norm.
    """
    if arguments.expected is None:
        return next(filter(None, map(not_finite, outputs)), "")
    if precision != FULL_PRECISION:
        return next(filter(None, map(narrow_disagreement, outputs, arguments.expected)), "")
    triples = zip(outputs, arguments.expected, arguments.scratch, strict=True)
    return next(filter(None, (disagreement(a, e, context.rtol, context.atol, s) for a, e, s in triples)), "")


def _one_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    return f"{name}: {text}"[:300] if text else name
