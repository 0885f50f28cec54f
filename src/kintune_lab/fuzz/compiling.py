"""Imports and compiles a model in this process, without measuring anything."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from kintune.core.candidate import Candidate, Sketch, described
from kintune.core.config import JobSpec, Options
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.core.stage_requests import Built
from kintune.errors import BuildError
from kintune.models.model import ImportedModel
from kintune.models.ref import parse_ref
from kintune.search.evolve import draw
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered
    from kintune.core.model import ModelRef
    from kintune.runtime.manifest import Manifest

__all__ = [
    "CANDIDATES",
    "DEFAULT",
    "OPEN",
    "QUANTISED",
    "Chosen",
    "CompileWay",
    "Compiler",
    "default_schedules",
    "leave_out_asserts",
    "ways_of",
]

_RULES = 6  # each so many models, subgraphs get the first program of their rule
_DRAWN = 4  # candidates of a subgraph, of which the first that can be built is taken

CANDIDATES, QUANTISED, OPEN, DEFAULT = "candidates", "quantised", "open", "onnx"

INSTRUCTION_SETS = {
    "no products of bytes": "llvm -mcpu=x86-64-v3",
    "vnni256": "llvm -mcpu=x86-64-v3 -mattr=+avxvnni",
    "vnni": "llvm -mcpu=cascadelake",
}
"""Targets for this architecture by the variant of the programs that multiply bytes there."""


@dataclass(frozen=True)
class Chosen:
    """Programs by the digests of their subgraphs; `kernels` by candidate are built already, `refused` are not valid."""

    programs: dict[str, tuple[Sketch, Candidate]] = field(default_factory=dict)
    kernels: dict[str, Built] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def alone(self) -> Iterator[tuple[str, Chosen]]:
        """Each program without the others, and its description."""
        for digest, (sketch, candidate) in self.programs.items():
            decided = described(sketch.axes, candidate.decisions)
            said = f"{_title(sketch)}, subgraph {digest}, sketch {sketch.digest}, decisions {decided}"
            yield said, replace(self, programs={digest: (sketch, candidate)})

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the programs."""
        return tuple(_title(sketch) for sketch, _ in self.programs.values())


def _title(sketch: Sketch) -> str:
    return program_of(sketch) or "MetaSchedule"


@functools.cache
def leave_out_asserts() -> None:
    """Let this process compile kernels without checks of their arguments, which take LLVM two fifths of its time.

    A wrong argument is then no error, but a wrong result or a crash.
    """
    import tvm
    from tvm.tirx import transform

    module = sys.modules["tvm.tirx.build"]  # `tvm.tirx.build` is a function
    generate = module.codegen_build

    def without(kernels: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        return generate(transform.SkipAssert()(kernels), target)

    module.codegen_build = without  # type: ignore[attr-defined]


class Compiler:
    """Compiles for one thread of a CPU, by default that of this machine."""

    def __init__(self, target: str = "native") -> None:
        """`target` is spelled as for `resolve_target`."""
        import tvm

        from kintune.runtime.target import instruction_set, resolve_target

        self._text = resolve_target(target, 1)
        self._target = tvm.target.Target(json.loads(self._text))
        self._machine = Processor.of(instruction_set(self._text))

    def lower(self, model: ImportedModel) -> Lowered:
        """The model's subgraphs."""
        from kintune.compiler.graph.lower import lower

        return lower(model.module, self._target)

    def lower_as(self, ref: ModelRef, model: ImportedModel) -> Any:
        """What `build` takes of the model that `ref` names."""
        return self.lower(model)

    def build(self, model: ImportedModel, lowered: Lowered, chosen: Chosen, *, keep_denormals: bool = False) -> Any:
        """The model as an executable; subgraphs without a chosen program get the compiler's default schedule.

        Raises:
            BuildError: as for `build_executable`.
        """
        from kintune.compiler.graph.executable import build_executable

        manifest = self._described(model, chosen, keep_denormals=keep_denormals)
        return build_executable(lowered, chosen.programs, self._target, manifest, chosen.kernels)

    def _described(self, model: ImportedModel, chosen: Chosen, *, keep_denormals: bool) -> Manifest:
        from kintune.compiler.graph.executable import describe_build

        return describe_build(
            model_name=model.name,
            model_digest=model.digest,
            target=self._text,
            threads=1,
            inputs=model.inputs,
            outputs=model.outputs,
            checks=model.checks,
            chosen={},
            sketches=[sketch for sketch, _ in chosen.programs.values()],
            keep_denormals=keep_denormals,
        )

    def compile(self, model: ImportedModel, *, rules: bool = False) -> Any:
        """The model as an executable; with `rules` each subgraph gets the first program of its rule.

        Raises:
            BuildError: as for `build_executable`.
        """
        lowered = self.lower(model)
        return self.build(model, lowered, self.first_programs(lowered) if rules else Chosen())

    def compile_as_job(self, path: Path, shapes: Sequence[str] = (), handed_over: Sequence[str] = ()) -> Path:
        """The result that a job without measurements writes beside a model; it may leave nodes to onnxruntime.

        `shapes` are spelled as for `parse_ref`, `handed_over` names nodes that are left to onnxruntime ("*": all).

        Raises:
            KintuneError: the model cannot be compiled so, either.
        """
        from kintune.tuning.job.tvm_backend import TvmBackend

        spec = JobSpec(
            run_id="fuzz",
            model=parse_ref(str(path), list(shapes)),
            device_type=DeviceType(self._text, "", (), 1, ""),
            protocol=MeasurementProtocol(threads=1),
            options=Options(keep_denormals=True),
            output=str(path.with_suffix(".kt")),
            handed_over=tuple(handed_over),
        )
        backend = TvmBackend()
        backend.prepare(spec)
        drafted = backend.draft({}, {})
        if drafted.packaged is None:
            raise BuildError(drafted.failure)
        return Path(drafted.packaged.tuned)

    def first_programs(self, lowered: Lowered) -> Chosen:
        """The first valid program by rule of each subgraph that has one."""
        ranked = self.ranked_programs(lowered, 2)
        return Chosen({digest: programs[0] for digest, programs in ranked.items()})

    def ranked_programs(self, lowered: Lowered, most: int) -> dict[str, list[tuple[Sketch, Candidate]]]:
        """Valid programs by rule of each subgraph that has one, at most so many, the most promising first."""
        from kintune.compiler.space.tvm_space import TvmSpace

        sketches = [sketch for workload in lowered.workloads for sketch in self._sketches(workload)]
        by_digest = {sketch.digest: sketch for sketch in sketches}
        modules = {workload.digest: workload.module for workload in lowered.workloads}
        space = TvmSpace(modules, sketches, self._target, self._machine, 1)
        found = {}
        for digest in modules:
            drafts = [draft.candidate for draft in space.verify(space.rules(digest, most)) if draft]
            if drafts:
                found[digest] = [(by_digest[candidate.sketch], candidate) for candidate in drafts]
        return found

    def drawn_candidates(self, lowered: Lowered, seed: Sequence[int]) -> Chosen:
        """For each subgraph the first of a few candidates, drawn as the search draws them, that can be built."""
        from kintune.compiler.build import build_candidate
        from kintune.compiler.space.replay import save_workload

        found, kernels, refused = {}, {}, []
        for workload in lowered.workloads:
            rng = np.random.default_rng((*seed, int(workload.digest, 16)))
            groups: dict[str, list[Sketch]] = {}
            with _logged_faults() as faults:
                for sketch in self._sketches(workload):
                    groups.setdefault(_title(sketch), []).append(sketch)
            refused += [line.partition(":")[0] for line in faults]
            for _ in range(_DRAWN if groups else 0):
                program = groups[sorted(groups)[int(rng.integers(len(groups)))]]
                sketch = program[int(rng.integers(len(program)))]
                candidate = draw(sketch, rng)
                try:
                    built = build_candidate(self._target, save_workload(workload.module), sketch, candidate)
                except BuildError:
                    refused.append(_title(sketch))
                    continue
                found[workload.digest], kernels[candidate.digest] = (sketch, candidate), built
                break
        return Chosen(found, kernels, tuple(refused))

    def _sketches(self, workload: Any) -> Sequence[Sketch]:
        from kintune.compiler.space.sketches import generate_sketches

        return generate_sketches(workload.digest, workload.module, self._target)


@contextlib.contextmanager
def _logged_faults() -> Iterator[list[str]]:
    """What `kintune.compiler.faults` logs in the block."""
    log, handler = logging.getLogger("kintune.compiler.faults"), logging.Handler()
    lines: list[str] = []
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


Choose: TypeAlias = Callable[[Compiler, "Lowered", Sequence[int]], Chosen]
"""Chooses programs for a lowered model of a seed and number."""


class CompileWay(NamedTuple):
    """How models are compiled: for which CPU, and which programs their subgraphs get; `name` tells it from others.

    If it `shares` models, those of which some nodes are refused are tried with these in onnxruntime, too.
    """

    name: str
    compiler: Compiler
    choose: Choose
    shares: bool = False


def default_schedules(compiler: Compiler, lowered: Lowered, seed: Sequence[int]) -> Chosen:
    """Nothing; for each sixth model the first programs by rule."""
    return Chosen() if seed[-1] % _RULES else compiler.first_programs(lowered)


def _programs_of_bytes(compiler: Compiler, lowered: Lowered, seed: Sequence[int]) -> Chosen:
    return compiler.drawn_candidates(lowered, seed) if seed[-1] % 2 else compiler.first_programs(lowered)


def _programs_of_others(compiler: Compiler, lowered: Any, seed: Sequence[int]) -> Chosen:
    """The first programs by rule; for each second model none."""
    return compiler.first_programs(lowered) if seed[-1] % 2 else Chosen()


def ways_of(what: str) -> list[CompileWay]:
    """The ways in which models of a kind are compiled: all must compute the same."""
    if what == QUANTISED:
        from kintune.runtime.target import missing_features, resolve_target

        here = [name for name, text in INSTRUCTION_SETS.items() if not missing_features(resolve_target(text, 1))]
        return [CompileWay(name, Compiler(INSTRUCTION_SETS[name]), _programs_of_bytes) for name in here]
    if what == CANDIDATES:
        return [CompileWay("", Compiler(), lambda compiler, lowered, seed: compiler.drawn_candidates(lowered, seed))]
    if what == OPEN:
        from kintune_lab.fuzz.open_compiling import OpenCompiler

        return [CompileWay("", OpenCompiler(), _programs_of_others)]
    return [CompileWay("", Compiler(), default_schedules, shares=what == DEFAULT)]
