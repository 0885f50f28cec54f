"""A network timed in several runtimes in turns: each has a process of its own and is stopped while others run.

The rounds are those of a validation (`kintune.validate.interleaved`), so that its latencies and these are of one
protocol.  Every runtime gets the same inputs, threads and cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import msgspec

from kintune.core.model import Constant, Tensor
from kintune.core.quantiles import quantile
from kintune.core.stage_requests import ValidationContext
from kintune.core.version import __version__
from kintune.errors import EngineError, cause_line
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import BASELINES, KINTUNE, BaselineModel
from kintune.validate.interleaved import time_interleaved
from kintune_lab.comparison.files import ModelFiles
from kintune_lab.comparison.output_errors import REFERENCE, OutputErrors

__all__ = ["OTHERS", "RuntimeTimes", "Start", "TimedProcess", "TimedSubject", "runtime_version", "time_in_turns"]

OTHERS = tuple(name for name in BASELINES if name != KINTUNE)
"""The runtimes that a network can be compared with."""

_ONCE = BaselineTurn(runs=1, seconds=0.0)


class TimedSubject(msgspec.Struct, frozen=True):
    """What is timed: the result of Kintune, if there is one, and the model's own files with its inputs.

    `inputs` is an `.npz` file with their values; without it they are drawn from `seed`.
    `quantised` is the model in 8 bits, for the runtimes that are to run it so.  With `measures_errors` the outputs of
    all runtimes are compared with those of the model itself, on the sets of inputs in `checked`, or else on `inputs`.
    """

    executable: str | None
    files: ModelFiles
    tensors: tuple[Tensor, ...]
    constants: dict[str, Constant] = {}
    inputs: str | None = None
    seed: int = 0
    quantised: str | None = None
    measures_errors: bool = False
    checked: tuple[str, ...] = ()


class RuntimeTimes(msgspec.Struct, frozen=True):
    """The timed runs of a runtime in milliseconds, in order; without any, `problem` says why.

    `rounds_ms` is the median of the runs of each round.
    `norm_error` is the largest norm of an output's error, as a share of the norm of that output, if it was measured.
    """

    times_ms: tuple[float, ...] = ()
    problem: str = ""
    norm_error: float | None = None
    rounds_ms: tuple[float, ...] = ()

    def share(self, part: float) -> float | None:
        """The time that this part of the runs does not exceed; None without runs."""
        return quantile(sorted(self.times_ms), part) if self.times_ms else None

    @property
    def median_ms(self) -> float | None:
        """The median; None without runs."""
        return self.share(0.5)


class TimedProcess(AbstractContextManager["TimedProcess"], Protocol):
    """A runtime that takes turns, such as `BaselineProcess`."""

    name: str

    def prepare(self, seconds: float) -> None:
        """Load and compile the network within `seconds`.

        Raises:
            EngineError: it cannot.
        """

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Take a turn within `seconds`; returns the times of its timed runs in milliseconds.

        Raises:
            EngineError: it cannot go on.
        """

    def close(self) -> None:
        """End it."""


Start = Callable[[str, BaselineContext], TimedProcess]
"""Makes the process of a runtime of this name."""


def time_in_turns(
    subject: TimedSubject,
    others: Sequence[str],
    conditions: ValidationContext,
    cores: Sequence[int],
    show: Callable[[str], None],
    start: Start = BaselineProcess,
) -> dict[str, RuntimeTimes]:
    """The times of Kintune's result, where there is one, and of `others`, by name in this order.

    The caller holds the cores.  A runtime that cannot run the network, or stops running it, has its reason instead of
    times.
    """
    names = [*([KINTUNE] if subject.executable else []), *others]
    problems: dict[str, str] = {}
    running: list[TimedProcess] = []
    with ExitStack() as processes, tempfile.TemporaryDirectory(prefix="kintune-outputs-") as directory:
        errors = (
            OutputErrors(subject.checked or (subject.inputs,), Path(directory)) if subject.measures_errors else None
        )
        if errors is not None:
            show("running the model itself")
            _run_reference(start(REFERENCE, _reference(subject, conditions, cores)), errors, conditions)
        for name in names:
            show(f"preparing {name}")
            process = processes.enter_context(start(name, _context(name, subject, conditions, cores)))
            try:
                process.prepare(conditions.prepare_seconds)
                for turn in [_ONCE] if errors is None else errors.turns(name):
                    process.turn(turn, conditions.prepare_seconds)
                running.append(process)
            except EngineError as error:
                problems[name] = cause_line(error)
                process.close()
        show("timing in turns")
        timed = time_interleaved(running, conditions, time.monotonic)
        found = {name: None if errors is None else errors.of(name) for name in names}
    problems |= {name: cause_line(EngineError(why)) for name, why in timed.dropped.items()}
    return {
        name: RuntimeTimes(
            timed.latency_ms.get(name, ()), problems.get(name, ""), found[name], timed.rounds_ms.get(name, ())
        )
        for name in names
    }


def _run_reference(process: TimedProcess, errors: OutputErrors, conditions: ValidationContext) -> None:
    """Run the model itself on all sets of inputs; where it does not run, no errors are known."""
    with process:
        try:
            process.prepare(conditions.prepare_seconds)
            for turn in errors.turns(REFERENCE):
                process.turn(turn, conditions.prepare_seconds)
        except EngineError:
            pass


def _reference(subject: TimedSubject, conditions: ValidationContext, cores: Sequence[int]) -> BaselineContext:
    name = "torch" if subject.files.onnx is None else "onnxruntime"
    return msgspec.structs.replace(_context(name, subject, conditions, cores), exact=True)


def _context(name: str, subject: TimedSubject, conditions: ValidationContext, cores: Sequence[int]) -> BaselineContext:
    files = subject.files
    model = BaselineModel(
        onnx=files.onnx, exported=files.exported, constants=subject.constants, quantised=subject.quantised
    )
    return BaselineContext(
        rival=name,
        subject=BaselineModel(executable=subject.executable) if name == KINTUNE else model,
        tensors=subject.tensors,
        inputs=subject.checked[0] if subject.checked else subject.inputs,
        seed=subject.seed,
        threads=conditions.threads,
        cores=tuple(cores),
    )


def runtime_version(name: str) -> str:
    """The version of a runtime; empty where it is not installed."""
    if name == KINTUNE:
        return __version__
    try:
        return version(name.partition("_")[0])  # openvino_bf16 is openvino
    except PackageNotFoundError:
        return ""
