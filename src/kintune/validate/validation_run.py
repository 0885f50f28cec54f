"""The state of one validation: the processes of its runtimes, their outputs and the runtimes that failed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from kintune.core.call_times import CallTimes
from kintune.core.config import Metric
from kintune.core.model import spell_shapes
from kintune.core.stage_requests import ValidationContext, ValidationItem, workload_of
from kintune.errors import EngineError, InputError, NumericsError
from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import inspect_machine
from kintune.hardware.gpu_target import is_gpu
from kintune.partition.keeping import hand_over_all, keep_regions, limit_region_threads
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.inputs import Array, draw_inputs, write_arrays
from kintune.runtime.package import Manifest, read_manifest, write_with_thread_counts
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn, ProfileNodesTurn, ProfileTurn
from kintune.validate.baselines import KINTUNE, BaselineModel
from kintune.validate.interleaved import (
    QUICK_SECONDS,
    TURN_SECONDS,
    WARM_SECONDS,
    InterleavedTimes,
    TimedEntry,
    time_interleaved,
)
from kintune.validate.numerics import (
    Difference,
    ProgramComparison,
    compare_each_program,
    compare_outputs,
    within_budget,
    worse,
)
from kintune.validate.plain_outputs import load_outputs, name_parts
from kintune.validate.region_choice import is_slower, rounds_agree, winning_regions, wins
from kintune.validate.region_times import time_regions
from kintune.validate.score import ScoreOrder, score
from kintune.validate.thread_choice import choose_thread_counts, is_faster, profile_kernels

__all__ = ["REFERENCES", "SLOW_UNTUNED_SECONDS", "TUNED", "UNTUNED", "ValidationRun"]

_ALONE = "subgraphs alone"
_HEAVY = "takes long untuned"

_BASELINE = "onnxruntime"
TUNED, UNTUNED = "tuned", "untuned"
"""The two executables of Kintune, as `ValidationResult` names them."""

REFERENCES = ("onnxruntime", "torch")
"""The runtimes that run the model itself: the references besides the untuned network."""

SLOW_UNTUNED_SECONDS = 0.5
"""An untuned network whose run takes longer does not run beside a runtime that runs the model itself."""

_SAMPLES = 3  # of a reference with noise
_CHOSEN = "tuned, threads chosen"
_BESIDE = "beside"
_FAST = "onnxruntime optimised"
_LEAST_GAIN = 0.02  # with which the extents of what runs in onnxruntime are fixed
_CALL_RUNS, _CALL_SECONDS = 50, 1.0
_AGAIN = {"rounds": 60, "runs": 2, "race_seconds": 20.0}  # of a second look at two
_ONCE = BaselineTurn(runs=1, seconds=0.0)


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
        self._number = number
        self._combination = manifest.combinations[number]
        self._directory = directory
        self._cores = choose_cores(1 if board else conditions.threads)  # a board has others
        self._sets: tuple[str | None, ...] = item.inputs or self._draw() or (None,)
        self.skipped: dict[str, str] = {}
        self.is_fixed = False

    def _draw(self) -> tuple[str, ...]:
        """Writes files with sets of inputs from seeds that follow each other; none where one set is enough."""
        if self.item.draws < 2:
            return ()
        paths = []
        for seed in range(self.item.seed, self.item.seed + self.item.draws):
            paths.append(self._directory / f"inputs {seed}.npz")
            write_arrays(paths[-1], draw_inputs(self._combination.inputs, seed))
        return tuple(map(str, paths))

    def run_untuned(self) -> dict[str, tuple[float, ...]]:
        """Runs the untuned network once, on a board several times if it is quick; returns its latency."""
        if self.item.untuned_s > SLOW_UNTUNED_SECONDS and len(self.compared) > 1:
            self.skipped[UNTUNED] = f"one run takes about {_few_digits(self.item.untuned_s)} s"
            return {}
        if self.item.untuned is None:
            return {}
        seconds = self.conditions.untuned_seconds
        with self._process(UNTUNED) as process:
            try:
                process.prepare(seconds)
                times = process.turn(msgspec.structs.replace(_ONCE, outputs=self._outputs_of(UNTUNED)), seconds)
                if self.board and times[0] < QUICK_SECONDS * 1e3:
                    times = process.turn(BaselineTurn(self.conditions.runs, TURN_SECONDS, WARM_SECONDS), seconds)
            except EngineError as error:
                self.skipped[UNTUNED] = str(error)
                return {}
        return {UNTUNED: times}

    def choose_regions(self, clock: Callable[[], float]) -> tuple[int, ...] | None:
        """Chooses the regions that are faster than onnxruntime on the same nodes, and goes on with these alone.

        None where nothing is to be chosen: there are no regions, or one, of which the times of the network tell.
        """
        hybrid = self.manifest.hybrid
        if hybrid is None or len(hybrid.regions) < 2 or not self._has_baseline:
            return None
        path = Path(self.item.tuned)
        kept = winning_regions(path, self._directory, self.conditions, self._cores, self.item.seed, clock)
        if len(kept) == len(hybrid.regions):
            return None
        if not kept and self.item.onnx and self.hand_over_all(clock):  # as it is published then
            return kept
        changed = self._directory / "regions.kt"
        onnx = Path(self.item.onnx) if self.item.onnx else None
        keep_regions(path, kept, changed, onnx, self.item.constants)
        self.item = msgspec.structs.replace(self.item, tuned=str(changed))
        return kept

    def hand_over_all(self, clock: Callable[[], float]) -> bool:
        """Goes on with a result that runs in onnxruntime altogether; returns whether that is possible.

        Its extents are fixed where that is faster (`is_fixed`): onnxruntime plans memory better then, or worse.
        """
        files = {fixed: self._directory / f"onnxruntime{' fixed' if fixed else ''}.kt" for fixed in (False, True)}
        source, onnx = Path(self.item.tuned), Path(str(self.item.onnx))
        try:
            for fixed, changed in files.items():
                hand_over_all(source, onnx, self.item.constants, changed, fixed=fixed)
        except InputError as error:
            self.skipped["all in onnxruntime"] = str(error)
            return False
        self.item = msgspec.structs.replace(self.item, tuned=str(files[False]))
        if len(self.manifest.combinations) == 1:
            self.is_fixed = self._go_on_if_faster(files[True], clock, least=_LEAST_GAIN)
        return True

    @property
    def _has_baseline(self) -> bool:
        """Whether nodes may run in onnxruntime, and it is timed."""
        return self.item.timed and self.item.may_hand_over and _BASELINE in self.item.compare

    def should_hand_over(self, rounds_ms: Mapping[str, Sequence[float]]) -> bool:
        """Returns whether all of the network is to run in onnxruntime, and may; from the median of each round by name.

        A network that needs no onnxruntime must be slower for that; one of regions goes unless it wins.
        """
        ours, theirs = rounds_ms.get(TUNED), rounds_ms.get(_BASELINE)
        if not (self._has_baseline and self.item.onnx and ours and theirs):
            return False
        if self._is_whole:
            return is_slower(ours, theirs)
        hybrid = read_manifest(self.item.tuned).hybrid
        return bool(hybrid and hybrid.regions) and not wins(ours, theirs)

    @property
    def _is_whole(self) -> bool:
        """Whether the network runs without onnxruntime on the shapes that it was tuned for."""
        hybrid = read_manifest(self.item.tuned).hybrid
        return hybrid is None or bool(hybrid.other_shapes)

    def look_again(
        self, first: InterleavedTimes, running: Sequence[TimedEntry], clock: Callable[[], float]
    ) -> InterleavedTimes:
        """Returns the times with those of further rounds, where the first do not agree.

        That is so where they would hand a whole network over, and some say otherwise: chance may decide then.
        Of the processes `running`, the network and onnxruntime take shorter turns.
        """
        ours, theirs = (first.rounds_ms.get(name, ()) for name in (TUNED, _BASELINE))
        if not self.should_hand_over(first.rounds_ms) or not self._is_whole or rounds_agree(ours, theirs):
            return first
        pair = [process for process in running if process.name in (TUNED, _BASELINE)]
        further = time_interleaved(pair, msgspec.structs.replace(self.conditions, **_AGAIN), clock)
        return first if further.dropped else first.followed_by(further)

    def choose_threads(self, clock: Callable[[], float]) -> dict[int, int]:
        """Chooses the threads of each kernel's call, by place, and goes on with the network that has them.

        Empty where nothing is to be chosen, or the network is no faster with it.
        """
        threads = min(self.conditions.threads, len(self._cores))
        if threads == 1 or self.board or is_gpu(self.manifest.target) or not self.item.timed:
            return {}
        if self.manifest.hybrid is not None:
            return {}
        with self._process(TUNED) as process:
            counts = self._thread_counts(process, threads)
        if not counts:
            return {}
        changed = self._directory / "threads.kt"
        write_with_thread_counts(self.item.tuned, changed, ({},) * self._number + (counts,))
        return counts if self._go_on_if_faster(changed, clock) else {}

    def choose_region_threads(self, clock: Callable[[], float]) -> tuple[dict[int, int], ...]:
        """Chooses the threads of the calls of each region, by place, and goes on with the result that has them.

        A region is timed by itself, on inputs that are drawn.  Empty where nothing is to be chosen, or the whole result
        is no faster with it.
        """
        threads = min(self.conditions.threads, len(self._cores))
        hybrid = read_manifest(self.item.tuned).hybrid
        if hybrid is None or not hybrid.regions or len(self.manifest.combinations) > 1:
            return ()
        if threads == 1 or not self.item.timed:
            return ()
        package = HybridPackage.open(self.item.tuned)
        found = []
        for number, region in enumerate(hybrid.regions):
            path = self._directory / f"threads of region{number}.kt"
            path.write_bytes(package.region(number))
            context = BaselineContext(
                rival=KINTUNE,
                subject=BaselineModel(executable=str(path)),
                tensors=read_manifest(path).inputs,
                inputs=None,
                seed=self.item.seed,
                threads=self.conditions.threads,
                cores=self._cores,
            )
            with BaselineProcess(region.name, context) as process:
                found.append(self._thread_counts(process, threads))
        if not any(found):
            return ()
        changed = self._directory / "threads of regions.kt"
        limit_region_threads(Path(self.item.tuned), found, changed)
        return tuple(found) if self._go_on_if_faster(changed, clock) else ()

    def time_calls(self) -> CallTimes | None:
        """Times the kernel calls of the tuned network inside it, and the nodes that it leaves to onnxruntime.

        None on another machine or a GPU, where it does not run, and for other combinations of shapes than the first.
        """
        if self.board or self._number or is_gpu(self.manifest.target):
            return None
        cpu, threads = inspect_machine().cpu, min(self.conditions.threads, len(self._cores))
        seconds = self.conditions.prepare_seconds
        hybrid = read_manifest(self.item.tuned).hybrid
        with self._process(TUNED) as process:
            try:
                process.prepare(seconds)
                if hybrid is not None:
                    nodes = process.profile_nodes(ProfileNodesTurn(_CALL_RUNS, _CALL_SECONDS), seconds).nodes
                else:
                    found = process.profile_calls(ProfileTurn(threads, _CALL_RUNS, _CALL_SECONDS), seconds)
                    return CallTimes(cpu, threads, found.us, found.timeline)
            except EngineError:  # the result is no worse for that
                return None
        ran = [number for number, region in enumerate(hybrid.regions) if region.name in {node.name for node in nodes}]
        package = HybridPackage.open(self.item.tuned)
        alone = time_regions(package, ran, 0, self._cores[:threads], _CALL_RUNS, _CALL_SECONDS)
        return CallTimes(cpu, threads, nodes=nodes, regions=alone.kernels, failed=alone.failed)

    def _thread_counts(self, process: BaselineProcess, threads: int) -> dict[int, int]:
        """The threads of each call that is faster on fewer than all; empty where the process fails."""
        try:
            process.prepare(self.conditions.prepare_seconds)
            return choose_thread_counts(profile_kernels(process, threads))
        except EngineError:  # the comparison, which runs the network again, says why
            return {}

    def _go_on_if_faster(self, changed: Path, clock: Callable[[], float], least: float = 0.0) -> bool:
        """Goes on with the network in the file `changed` if it is no slower, or faster by the share `least` at least.

        Returns whether it is.
        """
        plain = self.item
        with ExitStack() as processes:
            before = processes.enter_context(self._process(TUNED))
            self.item = msgspec.structs.replace(plain, tuned=str(changed))
            after = processes.enter_context(self._process(TUNED, label=_CHOSEN))
            try:
                before.prepare(self.conditions.prepare_seconds)
                after.prepare(self.conditions.prepare_seconds)
                if is_faster(before, after, self.conditions, clock, least):
                    return True
            except EngineError:  # the comparison says why
                pass
        self.item = plain
        return False

    @property
    def compared(self) -> tuple[str, ...]:
        """The names of the tuned network and of the references that its outputs are compared with."""
        files = {"onnxruntime": self.item.onnx, "torch": self.item.exported}
        named = (name for name in REFERENCES if files[name] and (name in self.item.compare or not self.item.timed))
        untuned = () if self.item.timed or self.item.untuned is None else (UNTUNED,)
        return TUNED, *untuned, *named

    def start_all(self, names: Sequence[str], processes: ExitStack) -> list[BaselineProcess | None]:
        """Starts these side by side, in exact arithmetic, and runs each once; None for each that cannot run."""
        starting = [processes.enter_context(self._process(name, exact=True)) for name in names]
        with ThreadPoolExecutor(len(starting)) as pool:
            return list(pool.map(partial(self._run_once, exact=True), starting))

    def start(self, name: str, processes: ExitStack) -> BaselineProcess | None:
        """Starts one and runs it once; None, with the reason in `skipped`, when it cannot run."""
        return self._run_once(processes.enter_context(self._process(name)))

    def _once(self, name: str, at: int, noise: int = 0) -> BaselineTurn:
        """Returns the order for a single run on this set of inputs that keeps the outputs."""
        path = self._sets[at] if len(self._sets) > 1 else None
        return msgspec.structs.replace(_ONCE, outputs=self._outputs_of(name, at), inputs=path, noise=noise)

    def _run_once(self, process: BaselineProcess, exact: bool = False) -> BaselineProcess | None:
        seconds = self.conditions.prepare_seconds
        others = range(1, len(self._sets)) if exact else ()
        try:
            process.prepare(seconds)
            for at in others:
                process.turn(self._once(process.name, at), seconds)
            process.turn(self._once(process.name, 0), seconds)  # last: the timed runs go on with these inputs
        except EngineError as error:
            self.skipped[process.name] = str(error)
            process.close()
            return None
        return process

    def time_beside(self, tuned: BaselineProcess, clock: Callable[[], float]) -> tuple[tuple[float, ...], ...]:
        """Times the tuned network, whose process ends here, and what is beside it, in turns.

        Returns the median of each round in milliseconds, of both; none where that is not asked, or one does not run.
        """
        if self.item.beside is None or self.item.timed:
            return ()
        tuned.close()
        with ExitStack() as processes:
            pair = [process for name in (TUNED, _BESIDE) if (process := self.start(name, processes)) is not None]
            found = time_interleaved(pair, self.conditions, clock).rounds_ms
        return tuple(found[name] for name in (TUNED, _BESIDE)) if len(found) == 2 else ()

    def skip_all(self, baselines: Sequence[BaselineProcess], why: str) -> None:
        """Ends these, which have run once and are not timed; `why` is the reason in `skipped`."""
        for baseline in baselines:
            self.skipped[baseline.name] = why
            baseline.close()

    def compare(self, references: Sequence[BaselineProcess]) -> tuple[Difference, tuple[str, ...]]:
        """Returns the tuned outputs' largest difference from any reference that ran, and which ran.

        `references` are those still running; one of them runs with noise where a value is out of tolerance.
        """
        worst, compared = Difference(0.0, 0.0, ""), set()
        for at in range(len(self._sets)):
            ran = [name for name in (UNTUNED, *REFERENCES) if Path(self._outputs_of(name, at)).exists()]
            found = {name: self._compare(name, at, ()) for name in ran}
            if self.conditions.max_error is None and any(difference.disagreement for difference in found.values()):
                samples = self._samples(references, at)
                if samples:
                    found = {n: self._compare(n, at, samples) if f.disagreement else f for n, f in found.items()}
            for difference in found.values():
                worst = worse(worst, difference)
            compared.update(ran)
        return worst, tuple(name for name in (UNTUNED, *REFERENCES) if name in compared)

    def score(self, metric: Metric) -> float:
        """Returns the user's score of the tuned network.

        Raises:
            NumericsError: his function fails.
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
        with self._process(_ALONE) as process:
            try:
                process.prepare(seconds.prepare_seconds)
                process.turn(self._once(_ALONE, 0), seconds.untuned_seconds)
            except EngineError as error:
                workloads = dict.fromkeys(workload_of(tensor.name) for tensor in tensors)
                return ProgramComparison(left_out={**left_out, **dict.fromkeys(workloads, str(error))})
        found = compare_each_program(tensors, self._outputs(_ALONE, 0), seconds.rtol, seconds.atol)
        return found._replace(left_out=left_out)

    def _compare(self, reference: str, at: int, samples: Sequence[Sequence[Array]]) -> Difference:
        parts = load_outputs(self._outputs_of(reference, at))
        names = name_parts(list(parts), [tensor.name for tensor in self._combination.outputs])
        tuned, expected = self._outputs(TUNED, at), list(parts.values())
        samples = [sample for sample in samples if [a.shape for a in sample] == [a.shape for a in expected]]
        found = compare_outputs(names, tuned, expected, self.conditions.rtol, self.conditions.atol, samples)
        source = f"{reference}, {self.item.input_names[at]}" if len(self.item.input_names) > 1 else reference
        if len(self.manifest.combinations) > 1:
            source = f"{source}, {spell_shapes(self._combination.shapes)}"
        if self.conditions.max_error is not None:
            found = within_budget(found, self.conditions.max_error)
        return found._replace(disagreement=found.disagreement and f"{found.disagreement} ({source})")

    def _samples(self, references: Sequence[BaselineProcess], at: int) -> list[list[Array]]:
        """Runs a reference with perturbed weights and inputs, and onnxruntime with all optimisations; their outputs."""
        taken = []
        reference = next((r for r in references if r.name != UNTUNED), next(iter(references), None))
        seconds = self.conditions.prepare_seconds
        if reference is not None:
            try:
                for noise in range(1, _SAMPLES + 1):
                    name = f"noise {noise}"
                    reference.turn(self._once(name, at, noise), seconds)
                    taken.append(self._outputs(name, at))
            except EngineError as error:
                self.skipped[f"{reference.name} with noise"] = str(error)
        if any(r.name == "onnxruntime" for r in references):
            if not Path(self._outputs_of(_FAST, at)).exists():
                with self._process("onnxruntime", label=_FAST) as fast:
                    self._run_once(fast, exact=True)
            if Path(self._outputs_of(_FAST, at)).exists():
                taken.append(self._outputs(_FAST, at))
        return taken

    def _process(self, name: str, exact: bool = False, label: str | None = None) -> BaselineProcess:
        ours = {
            TUNED: self.item.tuned,
            UNTUNED: self.item.untuned,
            _ALONE: self._alone,
            _BESIDE: self.item.beside,
        }
        is_timed = (self.item.timed and (name == TUNED or not exact)) or (
            self.item.beside is not None and name in (TUNED, _BESIDE) and not exact
        )
        subject = (
            BaselineModel(executable=ours[name])
            if name in ours
            else BaselineModel(onnx=self.item.onnx, exported=self.item.exported, constants=self.item.constants)
        )
        context = BaselineContext(
            rival=KINTUNE if name in ours else name,
            subject=subject,
            tensors=self._combination.inputs,
            inputs=self._sets[0],
            seed=self.item.seed,
            threads=self.conditions.threads if name in ours else len(self._cores),
            cores=self._cores if is_timed else _all_processors(),
            board=self.board if name in ours else "",
            exact=exact,
        )
        return BaselineProcess(label or name, context)

    @property
    def _alone(self) -> str | None:
        each = self.item.each_alone
        return each[self._number] if each else None

    def _outputs_of(self, name: str, at: int = 0) -> str:
        """Returns the file of the outputs on the set of inputs with this number."""
        return str(self._directory / (f"{name} {at}.npz" if at else f"{name}.npz"))

    def _outputs(self, name: str, at: int) -> list[Array]:
        return list(load_outputs(self._outputs_of(name, at)).values())


def _all_processors() -> tuple[int, ...]:
    """The processors that this process may use, for processes that are not timed."""
    return tuple(sorted(os.sched_getaffinity(0)))


def _few_digits(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
