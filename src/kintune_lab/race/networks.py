"""Whole networks with the programs that were found: compiled, checked against the untuned one, timed alternately."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.model import ModelRef
from kintune.core.quantiles import quantile
from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.hardware.cores import choose_cores
from kintune.runtime.inputs import load_inputs
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.interleaved import time_interleaved
from kintune.validate.numerics import compare_outputs
from kintune.wire.worker_client import WorkerProcess, WorkerRefused
from kintune_lab.race.turn_scheduler import RaceRecord
from kintune_lab.tuners.messages import ASSEMBLER, AssembleNetwork, AssemblyContext, ReplayPrograms
from kintune_lab.tuners.worker_processes import thread_variables

__all__ = ["UNTUNED_NETWORK", "Assembler", "NetworkTime", "time_networks"]

UNTUNED_NETWORK = "untuned"
"""The network that the outputs of all others are compared with; it is not timed."""

_EXECUTABLE = "kintune"  # what `kintune.validate.baselines` calls Kintune's executables
_ASSEMBLE_SECONDS = 3600.0


class NetworkTime(msgspec.Struct, frozen=True):
    """Latencies of one network in milliseconds; none when it did not run, or computed something else (`problem`)."""

    times_ms: tuple[float, ...] = ()
    problem: str = ""

    @property
    def median_ms(self) -> float | None:
        """The median of its runs."""
        return statistics.median(self.times_ms) if self.times_ms else None

    def quantile_ms(self, share: float) -> float | None:
        """The latency that this share of the runs did not exceed."""
        return quantile(sorted(self.times_ms), share) if self.times_ms else None


class Assembler:
    """The process that knows the network and all sketches of a race.  Use as a context manager."""

    def __init__(self, record: RaceRecord, model: ModelRef, threads: int, log: Path) -> None:
        environment = thread_variables(threads)
        self._process = WorkerProcess("assembler", "kintune_lab.tuners.assembler", log=log, environment=environment)
        self._context = msgspec.msgpack.encode(AssemblyContext(model, threads, tuple(record.sketches.values())))

    def __enter__(self) -> Assembler:
        self._process.greet()
        self._process.begin(ASSEMBLER, self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def structures(self, programs: Sequence[Candidate]) -> dict[Candidate, str]:
        """The structural hash of each program as it is replayed; empty where it cannot be replayed."""
        answer = self._process.order(msgspec.msgpack.encode(ReplayPrograms(tuple(programs))), _ASSEMBLE_SECONDS)
        return dict(zip(programs, msgspec.msgpack.decode(answer, type=tuple[str, ...]), strict=True))

    def assemble(self, path: Path, programs: Sequence[Candidate]) -> None:
        """Compile the network with these programs.

        Raises:
            WorkerRefused: compilation fails.
        """
        self._process.order(msgspec.msgpack.encode(AssembleNetwork(str(path), tuple(programs))), _ASSEMBLE_SECONDS)


def time_networks(
    assembler: Assembler,
    wanted: Mapping[str, Sequence[Candidate]],
    directory: Path,
    conditions: ValidationContext,
    show: Callable[[str], None],
) -> dict[str, NetworkTime]:
    """Compile the network once for each of `wanted` and once untuned, compare outputs, and time `wanted` in turns.

    Files and outputs go to `directory` and are gone when this returns.
    """
    problems: dict[str, str] = {}
    paths: dict[str, Path] = {}
    try:
        for number, (name, programs) in enumerate({UNTUNED_NETWORK: (), **wanted}.items()):
            show(f"compiling the network ({name})")
            path = directory / f"network-{number}.kt"
            try:
                assembler.assemble(path, programs)
                paths[name] = path
            except WorkerRefused as error:
                problems[name] = str(error)
        show("timing whole networks")
        times = _run(paths, directory, conditions, problems)
    finally:
        for path in directory.glob("network-*"):
            path.unlink()
    names = [UNTUNED_NETWORK, *wanted]
    return {name: NetworkTime(times.get(name, ()), problems.get(name, "")) for name in names}


def _run(
    paths: Mapping[str, Path], directory: Path, conditions: ValidationContext, problems: dict[str, str]
) -> dict[str, tuple[float, ...]]:
    with ExitStack() as stack:
        running: list[BaselineProcess] = []
        for name, path in paths.items():
            process = stack.enter_context(_start_process(name, path, conditions.threads))
            outputs = path.with_suffix(".npz")
            try:
                process.prepare(conditions.prepare_seconds)
                process.turn(BaselineTurn(1, 0.0, outputs=str(outputs)), conditions.prepare_seconds)
            except EngineError as error:
                problems[name] = str(error)
                continue
            if name == UNTUNED_NETWORK:  # one cold run is no time to compare with
                process.close()
                continue
            if problem := _difference(path, outputs, paths.get(UNTUNED_NETWORK), conditions):
                problems[name] = problem
                process.close()
                continue
            running.append(process)
        raced = time_interleaved(running, conditions, time.monotonic)
    problems.update(raced.dropped)
    return dict(raced.latency_ms)


def _start_process(name: str, path: Path, threads: int) -> BaselineProcess:
    context = BaselineContext(
        rival=_EXECUTABLE,
        subject=BaselineModel(executable=str(path)),
        tensors=read_manifest(path).inputs,
        inputs=None,
        seed=0,
        threads=threads,
        cores=choose_cores(threads),
    )
    return BaselineProcess(name, context)


def _difference(path: Path, outputs: Path, untuned: Path | None, conditions: ValidationContext) -> str:
    """How a network's outputs differ from the untuned one's, as one line; empty when they agree."""
    if untuned is None or not untuned.with_suffix(".npz").exists():
        return "there is no untuned network to compare with"
    names = [tensor.name for tensor in read_manifest(path).outputs]
    found = list(load_inputs(str(outputs)).values())
    expected = list(load_inputs(str(untuned.with_suffix(".npz"))).values())
    return compare_outputs(names, found, expected, conditions.rtol, conditions.atol).disagreement
