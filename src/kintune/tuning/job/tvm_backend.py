"""The compiler's side of a tuning job: import, lower, replay, compile."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import tvm

from kintune.compiler.graph.executable import build_executable, build_vm_executable, describe_build
from kintune.compiler.graph.lower import Lowered, lower
from kintune.compiler.graph.side_by_side import choose_alone, side_by_side
from kintune.compiler.graph.source_nodes import first_failing_node, nodes_of
from kintune.compiler.graph.workload import is_tunable
from kintune.compiler.space.replay import save_workload
from kintune.compiler.space.sketches import generate_sketches
from kintune.compiler.space.tvm_space import TvmSpace
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.config import JobSpec
from kintune.core.model import Tensor
from kintune.core.stage_requests import Built
from kintune.core.stage_results import (
    ALONE_FILE,
    BOARD_FILE,
    UNPROVEN,
    UNTUNED_FILE,
    DraftResult,
    Packaged,
    PerProgramCheck,
    Prepared,
)
from kintune.errors import BuildError, KintuneError, ModelError, OrderError, cause_line
from kintune.measure.rpc.timer import FLUSHED
from kintune.models.importer import load
from kintune.models.model import ImportedModel
from kintune.runtime.inputs import draw_inputs, load_arranged, load_inputs
from kintune.search.processor import Processor
from kintune.search.space import SearchSpace
from kintune.tuning.job.explanation import first_uncompilable, first_wrong

__all__ = ["TvmBackend"]


class TvmBackend:
    """Implements `kintune.tuning.job.backend.CompilerBackend` on TVM."""

    def __init__(self) -> None:
        self._spec: JobSpec | None = None
        self._model: ImportedModel | None = None
        self._lowered: Lowered | None = None
        self._sketches: dict[str, Sketch] = {}
        self._space: TvmSpace | None = None

    def prepare(self, spec: JobSpec) -> Prepared:
        """Import the model, lower it for the target, and list its subgraphs with their sketches."""
        target = tvm.target.Target(_target(spec))
        model = load(spec.model)
        for path in spec.input_files:  # so that unusable files are refused before the work
            load_arranged(model.inputs, path)
        lowered, conservative, notes = _lowered(model, target, conservative=spec.conservative)
        tunable = is_tunable(lowered.workloads)
        sketches = [
            sketch
            for workload in lowered.workloads
            for sketch in generate_sketches(workload.digest, workload.module, target)
        ]
        self._spec, self._model, self._lowered = spec, model, lowered
        self._sketches = {sketch.digest: sketch for sketch in sketches}
        self._space = TvmSpace(
            {w.digest: w.module for w in lowered.workloads},
            sketches,
            target,
            Processor.of(spec.device_type.isa, spec.protocol.threads, spec.caches),
            spec.cores,
        )
        nodes = nodes_of(model, lowered.workloads)
        subgraphs = [
            workload.subgraph(
                tunable=workload.digest in tunable,
                sketches=[s.digest for s in sketches if s.workload == workload.digest],
                nodes=nodes[workload.digest],
            )
            for workload in lowered.workloads
        ]
        return Prepared(
            model_name=model.name,
            model_digest=model.digest,
            inputs=model.inputs,
            outputs=model.outputs,
            subgraphs=tuple(subgraphs),
            modules={w.digest: save_workload(w.module) for w in lowered.workloads},
            sketches=tuple(sketches),
            conservative=conservative,
            notes=notes,
        )

    def space(self) -> SearchSpace:
        """Return the search space of the prepared network."""
        if self._space is None:
            raise OrderError("prepare the model before searching")
        return self._space

    def draft(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> DraftResult:
        """Compile the network with the chosen programs, and write it beside the output."""
        spec, model = self._spec, self._model
        if spec is None or model is None:
            raise OrderError("prepare the model before compiling it")
        path = f"{spec.output}{UNPROVEN}"
        try:
            self._save(path, chosen, kernels)
        except BuildError as error:
            traceback.print_exc()
            return DraftResult(None, str(error))
        return DraftResult(
            Packaged(
                tuned=path,
                chosen={workload: candidate.digest for workload, candidate in chosen.items()},
                onnx=model.onnx_path,
                exported=model.exported_path,
                constants=model.constants,
            )
        )

    def explain(self) -> str:
        """Return the first of the user's nodes that cannot be compiled or computes something else; empty if unknown."""
        spec, model = self._spec, self._model
        if spec is None or model is None:
            raise OrderError("prepare the model before explaining it")
        target = tvm.target.Target(_target(spec))
        if culprit := first_uncompilable(model, target):
            return culprit
        given = spec.input_files
        inputs = load_inputs(given[0]) if given else draw_inputs(model.inputs, spec.options.seed)
        return first_wrong(model, target, inputs)

    def package(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> Packaged:
        """Compile the network with the chosen programs, and once more untuned; write both beside the output."""
        spec, model = self._spec, self._model
        if spec is None or model is None:
            raise OrderError("prepare the model before packaging it")
        tuned = f"{spec.output}{UNPROVEN}"
        self._save(tuned, chosen, kernels)
        untuned: str | None = f"{spec.output}{UNTUNED_FILE}"
        try:
            self._save(str(untuned), {}, kernels)
        except BuildError:
            untuned = None
        return Packaged(
            tuned=tuned,
            chosen={workload: candidate.digest for workload, candidate in chosen.items()},
            untuned=untuned,
            onnx=model.onnx_path,
            exported=model.exported_path,
            constants=model.constants,
        )

    def kept(self, packaged: Packaged) -> bool:
        """Return whether the files that an earlier process of this job wrote still exist at the current output path."""
        here = self._spec is not None and packaged.tuned == f"{self._spec.output}{UNPROVEN}"
        files = (packaged.tuned, packaged.untuned, packaged.alone)
        return here and all(Path(path).exists() for path in files if path is not None)

    def set_apart(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> PerProgramCheck:
        """Compile the network that computes each subgraph a second time, untuned, and write it beside the output."""
        if self._spec is None or self._lowered is None:
            raise OrderError("prepare the model before packaging it")
        tuned = {workload for workload, candidate in chosen.items() if candidate.sketch != UNTUNED}
        compared, left_out = choose_alone(self._lowered, tuned)
        if not compared:
            return PerProgramCheck(None, tuple(sorted(left_out)))
        path = f"{self._spec.output}{ALONE_FILE}"
        try:
            alone = side_by_side(self._lowered, compared)
            self._save(path, chosen, kernels, alone.lowered, alone.outputs)
        except Exception:  # the compiler raises any kind of exception; the proof is possible without it
            traceback.print_exc()
            return PerProgramCheck(None, tuple(sorted(tuned)))
        return PerProgramCheck(path, tuple(sorted(left_out)))

    def _save(
        self,
        path: str,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        lowered: Lowered | None = None,
        outputs: tuple[Tensor, ...] | None = None,
    ) -> None:
        """Build the network with these programs, or `lowered`, made from it, with its `outputs`; write it to `path`."""
        spec, model, lowered = self._spec, self._model, lowered or self._lowered
        if spec is None or model is None or lowered is None:
            raise OrderError("prepare the model before packaging it")
        programs = {w: (self._sketches[c.sketch], c) for w, c in chosen.items() if c.sketch != UNTUNED}
        target = tvm.target.Target(_target(spec))
        manifest = describe_build(
            model_name=model.name,
            model_digest=model.digest,
            target=spec.device_type.target,
            threads=spec.protocol.threads,
            inputs=model.inputs,
            outputs=model.outputs if outputs is None else outputs,
            checks=model.checks if outputs is None else (),
            chosen={workload: candidate.digest for workload, candidate in chosen.items()},
            cpu=spec.device_type.model,
        )
        reused = sum(candidate.digest in kernels for candidate in chosen.values())
        print(f"{reused} of {len(set(lowered.functions.values()))} kernels were compiled already")
        build_executable(lowered, programs, target, manifest, kernels).save(path)
        if spec.device_type.protocol.endswith(FLUSHED):
            build_vm_executable(lowered, programs, target, manifest, kernels).save(f"{path}{BOARD_FILE}")


def _target(spec: JobSpec) -> dict[str, object]:
    target: dict[str, object] = json.loads(spec.device_type.target)
    return target


def _lowered(
    model: ImportedModel, target: tvm.target.Target, *, conservative: bool
) -> tuple[Lowered, bool, tuple[str, ...]]:
    """Lower the network; returns the result, whether it was lowered conservatively, and notes for the user.

    Raises:
        ModelError: it cannot be lowered in either way; the log has the messages of the compiler.
    """
    try:
        return lower(model.module, target, conservative=conservative), conservative, ()
    except KintuneError:
        raise
    except Exception as error:  # the compiler raises any kind of exception
        traceback.print_exc()
        cause = cause_line(error)
        if not conservative:
            print("lowering it without layout conversion", file=sys.stderr)
            lowered, _, _ = _lowered(model, target, conservative=True)
            note = f"layouts were left as they are, which may cost speed: converting them failed ({cause})"
            return lowered, True, (note,)
        node = first_failing_node(model, lambda module: lower(module, target, conservative=True))
        raise ModelError(f"{model.name}: {node or 'it'} cannot be compiled: {cause}") from error
