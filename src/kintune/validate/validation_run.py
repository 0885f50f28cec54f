"""The state of one validation: the processes of its runtimes, their outputs and the runtimes that failed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec
import onnx

from kintune.core.capabilities import Capabilities, capabilities_of
from kintune.core.config import Metric
from kintune.core.model import spell_shapes
from kintune.core.paired_ratio import paired_ratio
from kintune.core.stage_requests import ValidationContext, ValidationItem, workload_of
from kintune.core.verdict import Verdict
from kintune.errors import EngineError, InputError, NumericsError
from kintune.hardware.cores import choose_cores
from kintune.models.final_sigmoids import final_sigmoids
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.inputs import Array
from kintune.runtime.package import Manifest, read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import FLUSHING, KINTUNE, BaselineModel
from kintune.validate.input_sets import InputSets
from kintune.validate.interleaved import (
    QUICK_SECONDS,
    TURN_SECONDS,
    WARM_SECONDS,
    time_interleaved,
)
from kintune.validate.numerics import (
    NOTHING_COMPARED,
    Difference,
    ProgramComparison,
    compare_each_program,
    compare_outputs,
    within_budget,
    worse,
)
from kintune.validate.plain_outputs import load_outputs, name_parts
from kintune.validate.score import ScoreOrder, score
from kintune.wire.worker_client import WorkerRefused

__all__ = ["FAST", "REFERENCES", "SLOW_UNTUNED_SECONDS", "TUNED", "UNTUNED", "ValidationRun"]

_ALONE = "subgraphs alone"
_HEAVY = "takes long untuned"

TUNED, UNTUNED = "tuned", "untuned"
"""The two executables of Kintune, as `ValidationResult` names them."""

REFERENCES = ("onnxruntime", "torch")
"""The runtimes that run the model itself: the references besides the untuned network."""

FAST = "onnxruntime optimised"
"""onnxruntime with all optimisations, as another sample of what rounding does."""

SLOW_UNTUNED_SECONDS = 0.5
"""An untuned network whose run takes longer does not run beside a runtime that runs the model itself."""

_SAMPLES = 3  # of a reference with noise
_AGAIN = "again"
_REDRAWN = ("positive", "small")  # values of inputs, where with others most outputs are no numbers
_BESIDE = "beside"
_CHANGED = "Flushing denormal numbers to zero changes outputs of the model itself (--keep-denormals keeps them):"
_NOTICEABLE = 0.95  # of the time that it takes without flushing
_BRIEF_SECONDS = 2.0
_ONCE = BaselineTurn(runs=1, seconds=0.0)
_SHORTLY = BaselineTurn(runs=2, seconds=0.1)
_LONG_MS = 5.0  # a run that is made again where slow parts are looked for


class ValidationRun:
    """One validation: starts processes, compares outputs; `skipped` says which runtimes failed, and why."""

    def __init__(
        self,
        conditions: ValidationContext,
        item: ValidationItem,
        manifest: Manifest,
        directory: Path,
        board: str,
        number: int = 0,
    ) -> None:
        """`item` has the inputs for the manifest's combination of shapes with this `number`."""
        self.conditions = conditions
        self.item = item
        self.manifest = manifest
        self.board = board
        self.number = number
        self.combination = manifest.combinations[number]
        self.directory = directory
        self.cores = choose_cores(1 if board else conditions.threads)  # a board has others
        self.inputs = InputSets(item, self.combination.inputs, directory, manifest.drawn)
        self.skipped: dict[str, str] = {}
        self.tuned: list[BaselineProcess] = []
        self.refused: dict[int, dict[str, str]] = {}
        """By the number of a set of inputs that were drawn: why some could not run on it."""
        self.has_flushed = False
        """Whether a reference flushes denormal numbers to zero."""
        self.given_draws = manifest.hybrid is not None and not board and _draws_numbers(item.tuned)
        self.once_ms: dict[str, float] = {}
        """The milliseconds of a single run in exact arithmetic, by name."""

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model, without weights that are in other files; an empty one if it is not an ONNX file."""
        path = self.item.onnx
        return onnx.ModelProto() if path is None else onnx.load(path, load_external_data=False)

    @cached_property
    def sigmoids(self) -> frozenset[str]:
        """The outputs that are a sigmoid."""
        return final_sigmoids(self.model)

    def run_untuned(self) -> dict[str, tuple[float, ...]]:
        """Runs the untuned network once, on a board several times if it is quick; returns its latency."""
        if self.item.untuned_s > SLOW_UNTUNED_SECONDS and len(self.compared) > 1:
            self.skipped[UNTUNED] = f"one run takes about {_few_digits(self.item.untuned_s)} s"
            return {}
        if self.item.untuned is None:
            return {}
        seconds = self.conditions.untuned_seconds
        with self.process(UNTUNED) as process:
            try:
                process.prepare(seconds)
                times = process.turn(msgspec.structs.replace(_ONCE, outputs=self.outputs_path(UNTUNED)), seconds)
                if self.board and times[0] < QUICK_SECONDS * 1e3:
                    times = process.turn(BaselineTurn(self.conditions.runs, TURN_SECONDS, WARM_SECONDS), seconds)
            except EngineError as error:
                self.skipped[UNTUNED] = str(error)
                return {}
        return {UNTUNED: times}

    @property
    def compared(self) -> tuple[str, ...]:
        """The names of the tuned network and of the references that its outputs are compared with."""
        files = {"onnxruntime": self.item.onnx, "torch": self.item.exported}
        named = (name for name in REFERENCES if files[name] and (name in self.item.compare or not self.item.timed))
        untuned = () if self.item.timed or self.item.untuned is None else (UNTUNED,)
        return TUNED, *untuned, *named

    def start_all(self, names: Sequence[str], processes: ExitStack) -> list[BaselineProcess | None]:
        """Starts these side by side, in exact arithmetic, and runs each once; None for each that cannot run."""
        starting = [processes.enter_context(self.process(name, exact=True)) for name in names]
        with ThreadPoolExecutor(len(starting)) as pool:
            started = list(pool.map(partial(self._run_once, exact=True), starting))
        self.tuned = [process for process in started if process is not None and process.name == TUNED]
        return started

    def start(self, name: str, processes: ExitStack) -> BaselineProcess | None:
        """Starts one and runs it once; None, with the reason in `skipped`, when it cannot run."""
        return self._run_once(processes.enter_context(self.process(name)))

    def once(self, name: str, at: int, noise: int = 0) -> BaselineTurn:
        """Returns the order for a single run on this set of inputs that keeps the outputs."""
        path = self.inputs.file_of_several(at)
        return msgspec.structs.replace(_ONCE, outputs=self.outputs_path(name, at), inputs=path, noise=noise)

    def _run_once(self, process: BaselineProcess, exact: bool = False) -> BaselineProcess | None:
        seconds = self.conditions.prepare_seconds
        others = range(1, len(self.inputs)) if exact else ()
        try:
            process.prepare(seconds)
            for at in others:
                try:
                    process.turn(self.once(process.name, at), seconds)
                except WorkerRefused as error:
                    if self.item.inputs:
                        raise
                    self.refused.setdefault(at, {})[process.name] = str(error)
            times = process.turn(self.once(process.name, 0), seconds)  # last: the timed runs go on with these inputs
            if exact:
                self.once_ms[process.name] = times[0]
        except EngineError as error:
            self.skipped[process.name] = str(error)
            process.close()
            return None
        return process

    def time_beside(self, tuned: BaselineProcess, clock: Callable[[], float]) -> tuple[tuple[float, ...], ...]:
        """Times the tuned network, whose process ends here, and the executable `item.beside` in turns.

        Returns the median of each round in milliseconds, of both; empty if there is no such executable, if the item is
        `timed` anyway, or if one of the two does not run.
        """
        if self.item.beside is None or self.item.timed:
            return ()
        tuned.close()
        with ExitStack() as processes:
            pair = [process for name in (TUNED, _BESIDE) if (process := self.start(name, processes)) is not None]
            found = time_interleaved(pair, self.conditions, clock).rounds_ms
        return tuple(found[name] for name in (TUNED, _BESIDE)) if len(found) == 2 else ()

    def run_again(self, processes: Sequence[BaselineProcess]) -> None:
        """Runs these, which have run once, again one after the other where a run is long: first runs get their memory.

        It is done where slow parts are looked for; `once_ms` has the fastest runs then.
        """
        if not self.item.find_slow or self.once_ms.get(TUNED, 0.0) < _LONG_MS:
            return
        for process in processes:
            with suppress(EngineError):  # its outputs are compared already
                times = process.turn(_SHORTLY, self.conditions.prepare_seconds)
                self.once_ms[process.name] = min(self.once_ms.get(process.name, math.inf), *times)

    def skip_all(self, baselines: Sequence[BaselineProcess], why: str) -> None:
        """Ends these, which have run once and are not timed; `why` is the reason in `skipped`."""
        for baseline in baselines:
            self.skipped[baseline.name] = why
            baseline.close()

    def compare(self, references: Sequence[BaselineProcess]) -> tuple[Difference, tuple[str, ...]]:
        """Returns the tuned outputs' largest difference from any reference that ran, and which ran.

        `references` are those still running; one of them runs with noise where a value is out of tolerance.
        """
        worst, compared = NOTHING_COMPARED, set[str]()
        for at in range(len(self.inputs)):
            found, ran = self._compare_set(references, at)
            worst = worse(worst, found)
            compared.update(ran)
        for values in _REDRAWN if compared and not self.item.inputs else ():
            if worst.verdict is Verdict.WRONG or not worst.not_compared or worst.doubtful:
                break
            found, _ = self._compare_set(references, self._redraw(values, references))
            worst = worst if found.disagreement or found.doubtful else worse(worst, found)
        return worst, tuple(name for name in (UNTUNED, *REFERENCES) if name in compared)

    def _compare_set(self, references: Sequence[BaselineProcess], at: int) -> tuple[Difference, list[str]]:
        """Returns the difference on one set of inputs, and the references that ran on it."""
        if at in self.refused:
            return self._judge_refused(at), []
        worst = NOTHING_COMPARED
        ran = [name for name in (UNTUNED, *REFERENCES) if Path(self.outputs_path(name, at)).exists()]
        found = {name: self._compare(name, at, ()) for name in ran}
        if self.conditions.max_error is None and any(difference.disagreement for difference in found.values()):
            unsteady = self.unsteady(references, at)
            samples = self.samples(references, at)
            if samples or unsteady:
                found = {n: self._compare(n, at, samples, unsteady) if f.disagreement else f for n, f in found.items()}
        for difference in found.values():
            worst = worse(worst, difference)
        return worst, ran

    def _redraw(self, values: str, references: Sequence[BaselineProcess]) -> int:
        """Runs all on one more set of inputs, whose floating-point numbers are such `values`; returns its number."""
        at = self.inputs.redraw(values)
        for process in (*self.tuned, *references):
            try:
                process.turn(self.once(process.name, at), self.conditions.prepare_seconds)
            except EngineError as error:
                self.refused.setdefault(at, {})[process.name] = str(error)
        return at

    def score(self, metric: Metric) -> float:
        """Returns the user's score of the tuned network.

        Raises:
            NumericsError: the user's function fails.
        """
        order = ScoreOrder(metric, self.conditions.threads, executable=self.item.tuned, held_back=self.item.held_back)
        try:
            return score(order)
        except InputError as error:
            raise NumericsError(str(error)) from error

    def compare_first(self, reference: str) -> Difference:
        """Returns the difference of the tuned outputs from those of a reference, on the first set of inputs."""
        return self._compare(reference, 0, ())

    def compare_each_program(self) -> ProgramComparison:
        """Compares each subgraph with its untuned program, on its inputs within the network."""
        left_out = dict.fromkeys(self.item.left_out, _HEAVY)
        if self._alone is None:
            return ProgramComparison(left_out=left_out)
        tensors = read_manifest(self._alone).outputs
        seconds = self.conditions
        with self.process(_ALONE) as process:
            try:
                process.prepare(seconds.prepare_seconds)
                process.turn(self.once(_ALONE, 0), seconds.untuned_seconds)
            except EngineError as error:
                workloads = dict.fromkeys(workload_of(tensor.name) for tensor in tensors)
                return ProgramComparison(left_out={**left_out, **dict.fromkeys(workloads, str(error))})
        found = compare_each_program(tensors, self.outputs(_ALONE, 0), seconds.rtol, seconds.atol)
        return found._replace(left_out=left_out)

    def _compare(
        self, reference: str, at: int, samples: Sequence[Sequence[Array]], unsteady: Mapping[str, str] | None = None
    ) -> Difference:
        parts = load_outputs(self.outputs_path(reference, at))
        names = name_parts(list(parts), [tensor.name for tensor in self.combination.outputs])
        tuned, expected = self.outputs(TUNED, at), list(parts.values())
        samples = [sample for sample in samples if len(sample) == len(expected)]
        rtol, atol = self.conditions.rtol, self.conditions.atol
        found = compare_outputs(names, tuned, expected, rtol, atol, samples, unsteady or {}, self.sigmoids)
        source = f"{reference}, {self.item.input_names[at]}" if len(self.item.input_names) > 1 else reference
        if found.disagreement and (chosen := self.inputs.chosen(at)):
            source = f"{source}, {chosen}"
        if len(self.manifest.combinations) > 1:
            source = f"{source}, {spell_shapes(self.combination.shapes)}"
        if self.conditions.max_error is not None:
            found = within_budget(found, self.conditions.max_error)
        return found._replace(
            disagreement=found.disagreement and f"{found.disagreement} ({source})",
            doubtful=found.doubtful and f"{found.doubtful} ({source})",
        )

    def _judge_refused(self, at: int) -> Difference:
        """The difference on inputs that were drawn, and that the tuned network or a reference has refused.

        It is a disagreement only if a reference takes them, and the tuned network does not.
        """
        values, refused = self.inputs.chosen(at), self.refused[at]
        if TUNED in refused and any(Path(self.outputs_path(name, at)).exists() for name in REFERENCES):
            return NOTHING_COMPARED._replace(disagreement=f"with {values}, it does not run: {refused[TUNED]}")
        name, why = next(iter(refused.items()))
        what = f"with {values or 'another set of drawn inputs'}"
        return NOTHING_COMPARED._replace(not_compared={what: f"{what}: {name} does not run: {why}"})

    def unsteady(self, references: Sequence[BaselineProcess], at: int) -> dict[str, str]:
        """The outputs that differ in two runs of a reference on the same inputs, each with the reason in words."""
        reference = next((r for r in references if r.name != UNTUNED), None)
        if reference is None:
            return {}
        try:
            reference.turn(self.once(_AGAIN, at), self.conditions.prepare_seconds)
        except EngineError as error:
            self.skipped[f"{reference.name} once more"] = str(error)
            return {}
        first = load_outputs(self.outputs_path(reference.name, at))
        names = name_parts(list(first), [tensor.name for tensor in self.combination.outputs])
        again = self.outputs(_AGAIN, at)
        why = f"two runs of {reference.name} on the same inputs give different values"
        return {
            name: why
            for name, one, other in zip(names, first.values(), again, strict=False)
            if compare_outputs([name], [other], [one], self.conditions.rtol, self.conditions.atol).disagreement
        }

    def samples(self, references: Sequence[BaselineProcess], at: int) -> list[list[Array]]:
        """Runs a reference with perturbed weights and inputs, and onnxruntime with all optimisations; their outputs."""
        taken = []
        reference = next((r for r in references if r.name != UNTUNED), next(iter(references), None))
        seconds = self.conditions.prepare_seconds
        if reference is not None:
            try:
                for noise in range(1, _SAMPLES + 1):
                    name = f"noise {noise}"
                    reference.turn(self.once(name, at, noise), seconds)
                    taken.append(self.outputs(name, at))
                    plain = load_outputs(self.outputs_path(reference.name, at)).values()
                    if all(one.shape != other.shape for one, other in zip(taken[-1], plain, strict=True)):
                        return taken  # nothing can be said of any output: more runs, of seconds each, tell no more
            except EngineError as error:
                self.skipped[f"{reference.name} with noise"] = str(error)
        if any(r.name == "onnxruntime" for r in references):
            if at not in self.inputs.extremes and not Path(self.outputs_path(FAST, at)).exists():
                with self.process("onnxruntime", label=FAST, flush=self.has_flushed) as fast:
                    self._run_once(fast, exact=True)
            if Path(self.outputs_path(FAST, at)).exists():
                taken.append(self.outputs(FAST, at))
        return taken

    def process(self, name: str, exact: bool = False, label: str | None = None, flush: bool = False) -> BaselineProcess:
        """Returns a process, not yet started, of this network or runtime; `label` names its files and messages.

        In `exact` arithmetic it may use all processors, since it is not timed.  A runtime flushes denormal numbers to
        zero with `flush`.
        """
        ours = {
            TUNED: self.item.tuned,
            UNTUNED: self.item.untuned,
            _ALONE: self._alone,
            _BESIDE: self.item.beside,
        }
        is_timed = (self.item.timed and (name == TUNED or not exact)) or (
            self.item.beside is not None and name in (TUNED, _BESIDE) and not exact
        )
        given_draws = self.given_draws and (exact or label == FAST)
        subject = (
            BaselineModel(executable=ours[name], given_draws=given_draws)
            if name in ours
            else BaselineModel(
                onnx=self.item.onnx,
                exported=self.item.exported,
                constants=self.item.constants,
                given_draws=given_draws,
            )
        )
        context = BaselineContext(
            rival=KINTUNE if name in ours else FLUSHING[name] if flush else name,
            subject=subject,
            tensors=self.combination.inputs,
            inputs=self.inputs.first,
            seed=self.item.seed,
            threads=self.conditions.threads if name in ours else len(self.cores),
            cores=self.cores if is_timed else _all_processors(),
            board=self.board if name in ours else "",
            exact=exact,
        )
        return BaselineProcess(label or name, context)

    def flushing_rival(self, plain: BaselineProcess, processes: ExitStack) -> BaselineProcess | None:
        """Starts onnxruntime with denormal numbers flushed to zero beside the `plain` one, which has run once.

        None where no such numbers occurred, the result keeps them, or it is no faster for that.
        """
        if not (self.flushes and plain.met_denormals):
            return None
        flushing = self.start(FLUSHING[plain.name], processes)
        if flushing is None:
            return None
        brief = msgspec.structs.replace(self.conditions, rounds=4, min_rounds=1, race_seconds=_BRIEF_SECONDS)
        found = time_interleaved((plain, flushing), brief, time.monotonic).rounds_ms
        if len(found) == 2 and paired_ratio(found[flushing.name], found[plain.name]) < _NOTICEABLE:
            return flushing
        flushing.close()
        return None

    def flush_references(
        self, references: Sequence[BaselineProcess], processes: ExitStack
    ) -> tuple[list[BaselineProcess], str]:
        """Replaces references that met denormal numbers, if the result flushes these to zero, by ones that do, too.

        Also returns one line on how this changes outputs by more than the tolerances; empty if it does not.
        """
        found, changed = [], ""
        for plain in references:
            found.append(plain)
            if plain.name not in FLUSHING or not (self.flushes and plain.met_denormals):
                continue
            kept = self.outputs(plain.name, 0)
            flushing = self._run_once(processes.enter_context(self.process(plain.name, True, flush=True)), exact=True)
            if flushing is None:
                continue
            plain.close()
            found[-1], self.has_flushed = flushing, True
            names = [tensor.name for tensor in self.combination.outputs]
            flushed = self.outputs(plain.name, 0)
            difference = compare_outputs(names, flushed, kept, self.conditions.rtol, self.conditions.atol)
            changed = changed or (difference.disagreement and f"{_CHANGED} {difference.disagreement}")
        return found, changed

    @property
    def capabilities(self) -> Capabilities:
        """What the device that the result runs on can do."""
        manifest = self.manifest
        return capabilities_of(manifest.target, manifest.isa, manifest.threads, remote=bool(self.board))

    @property
    def runs_plans_here(self) -> bool:
        """Whether processes of this machine run the result's plan, so that its calls can be timed."""
        return self.capabilities.plans and not self.capabilities.remote

    @property
    def flushes(self) -> bool:
        """Whether the result flushes denormal numbers to zero."""
        return not self.manifest.keep_denormals and self.capabilities.flushes_denormals

    @property
    def _alone(self) -> str | None:
        each = self.item.each_alone
        return each[self.number] if each else None

    def outputs_path(self, name: str, at: int = 0) -> str:
        """Returns the file of the outputs on the set of inputs with this number."""
        return str(self.directory / (f"{name} {at}.npz" if at else f"{name}.npz"))

    def outputs(self, name: str, at: int) -> list[Array]:
        """The outputs of this runtime on the set of inputs with this number."""
        return list(load_outputs(self.outputs_path(name, at)).values())


def _all_processors() -> tuple[int, ...]:
    """The processors that this process may use, for processes that are not timed."""
    return tuple(sorted(os.sched_getaffinity(0)))


def _draws_numbers(executable: str) -> bool:
    """Whether what runs in onnxruntime draws random numbers."""
    from onnx import ModelProto

    from kintune.models.given_draws import draws_numbers

    return draws_numbers(ModelProto.FromString(HybridPackage.open(executable).graph))


def _few_digits(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
