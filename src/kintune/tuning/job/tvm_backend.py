"""The compiler's side of a tuning job: import, lower, replay, compile."""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tvm

from kintune.compiler.graph.executable import build_executable, build_plans, build_vm_executable, describe_build
from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.side_by_side import choose_alone, side_by_side
from kintune.compiler.graph.workload import StandaloneWorkload
from kintune.compiler.programs.registry import instructions_of
from kintune.compiler.space.packing import packing_of
from kintune.compiler.space.replay import apply_candidate, save_workload
from kintune.compiler.space.sketches import generate_sketches
from kintune.compiler.space.tvm_space import TvmSpace
from kintune.core.candidate import FULL_PRECISION, UNTUNED, Candidate, Sketch
from kintune.core.config import JobSpec
from kintune.core.keeping import Keeping
from kintune.core.model import Combination
from kintune.core.quantisation import INT8
from kintune.core.stage_requests import BaselineItem, Built
from kintune.core.stage_results import (
    ALONE_FILE,
    BOARD_FILE,
    QUANTISED_FILE,
    UNPROVEN,
    UNTUNED_FILE,
    DraftResult,
    Packaged,
    PerProgramCheck,
    Prepared,
)
from kintune.errors import BuildError, ModelError, OrderError
from kintune.hardware.narrow_instructions import check_narrow
from kintune.models.importer import load
from kintune.runtime.executable import Executable
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.runtime.inputs import draw_inputs, load_fitting, load_inputs
from kintune.runtime.manifest import Manifest, Narrow
from kintune.runtime.stored_zip import folder_beside
from kintune.runtime.vm_executable import VmExecutable
from kintune.search.processor import Processor
from kintune.search.sketch_program import narrow, program_of
from kintune.search.space import SearchSpace
from kintune.tuning.job.explanation import first_uncompilable, first_wrong
from kintune.tuning.job.hybrid_files import take_other_shapes, write_partitioned
from kintune.tuning.job.job_files import JobFiles
from kintune.tuning.job.loading import load_model, may_run_in_onnxruntime, sums_of_bytes
from kintune.tuning.job.networks import Networks, ShapedNetwork
from kintune.tuning.job.quantised_file import QuantisedModel
from kintune.tuning.job.region_check import first_wrong_node
from kintune.validate.baselines import BaselineModel, run_on, takes

__all__ = ["TvmBackend"]

_log = logging.getLogger(__name__)

_NOTICEABLE = 0.01  # of a network's arithmetic
_MOST_TOLD = 4  # subgraphs in a note


class TvmBackend:
    """Implements `kintune.tuning.job.backend.CompilerBackend` on TVM."""

    def __init__(self) -> None:
        self._spec: JobSpec | None = None
        self._files: JobFiles | None = None
        self._networks: Networks | None = None
        self._sketches: dict[str, Sketch] = {}
        self._space: TvmSpace | None = None
        self._modules: dict[str, tvm.IRModule] = {}
        self._packings: dict[Candidate, str] = {}
        self._quantised: QuantisedModel | None = None
        self._on_bytes: tuple[str, ...] = ()

    def prepare(self, spec: JobSpec) -> Prepared:
        """Import the model, lower it for the target with each combination of its shapes, and list its subgraphs with
        their sketches.
        """
        can = spec.device_type.capabilities
        if spec.model.more_shapes and not can.several_shapes:
            raise ModelError(f"{spec.model.name}: {can.a_device} runs one combination of shapes; tune them one by one")
        check_narrow(spec.device_type, spec.options.precision, spec.options.weights)
        target = tvm.target.Target(_target(spec))
        files = JobFiles(spec)
        spec = files.spec
        with files.named_in_errors():
            spec, (networks, handed_over, self._quantised) = load_model(spec, target)
        for path in spec.input_files:  # so that unusable files are refused before the work
            load_fitting(networks.combinations, path)
        workloads = networks.workloads()
        sketches = [
            sketch
            for workload in workloads
            for sketch in generate_sketches(workload.digest, workload.module, target, spec.options.precisions)
            if not set(instructions_of(program_of(sketch))).intersection(spec.avoided)
        ]
        self._spec, self._files, self._networks = spec, files, networks
        processor = Processor.of(spec.device_type.isa, spec.protocol.threads, spec.caches)
        if networks.opened is not None:
            every, sketches = sketches, networks.opened.openable(sketches, processor)
            networks = networks._replace(notes=(*networks.notes, *_without_program(workloads, every, sketches)))
        self._sketches = {sketch.digest: sketch for sketch in sketches}
        self._modules = {workload.digest: workload.module for workload in workloads}
        self._on_bytes = () if self._quantised is None else sums_of_bytes(workloads)
        self._space = TvmSpace(
            self._modules,
            sketches,
            target,
            processor,
            spec.cores,
            None if networks.opened is None else networks.opened.is_open,
        )
        may_return = may_run_in_onnxruntime(spec) and networks.onnx_path is not None and networks.opened is None
        first, *more = networks.combinations
        return Prepared(
            model_name=networks.name,
            model_digest=networks.digest,
            inputs=first.inputs,
            outputs=first.outputs,
            subgraphs=networks.subgraphs(sketches),
            modules={w.digest: save_workload(w.module) for w in workloads},
            sketches=tuple(sketches),
            conservative=networks.conservative,
            notes=networks.notes,
            more=tuple(more),
            hybrid=networks.hybrid is not None,
            handed_over=handed_over,
            can_hand_over=may_return and not spec.model.more_shapes,
            may_return=may_return,
            quantised=None if self._quantised is None else self._quantised.quantised,
            on_bytes=self._on_bytes,
        )

    def space(self) -> SearchSpace:
        """Return the search space of the prepared network."""
        if self._space is None:
            raise OrderError("prepare the model before searching")
        return self._space

    def baseline_item(self) -> BaselineItem | None:
        """Return what is to be timed of the user's own model; nothing for GPUs and boards, which others do not run."""
        spec, networks = self._ready()
        named, inputs = self._named()
        files = BaselineModel(onnx=networks.onnx_path, exported=networks.exported_path)
        compare = tuple(name for name in spec.options.compare if takes(name, files))
        if not compare or not run_on(spec.device_type):
            return None
        return BaselineItem(
            combinations=tuple(each.inputs for each in networks.combinations),
            onnx=named.onnx,
            exported=named.exported,
            constants=networks.constants,
            inputs=inputs,
            seed=spec.options.seed,
            compare=compare,
        )

    def draft(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        beside: Mapping[str, Candidate] | None = None,
    ) -> DraftResult:
        """Compile the network with the chosen programs, and write it beside the output.

        With `keeping`, write it also without tensors in bf16, if it has any with them; with programs `beside`, also
        with these.
        """
        spec, networks = self._ready()
        path, other = f"{spec.output}{UNPROVEN}", None
        named, _ = self._named()
        try:
            kept = self._save(path, chosen, kernels, keeping=keeping)
            if keeping and not kept:
                return DraftResult(None, "no tensor can be kept in bf16")
            if keeping or beside:
                other = f"{spec.output}{UNTUNED_FILE}"
                self._save(other, beside or chosen, kernels)
        except BuildError as error:
            traceback.print_exc()
            return DraftResult(None, str(error), tuple(sorted(error.at_fault)))
        return DraftResult(
            Packaged(
                tuned=path,
                chosen={workload: candidate.digest for workload, candidate in chosen.items()},
                onnx=named.onnx,
                exported=named.exported,
                constants=networks.constants,
                hybrid=_is_hybrid(spec, networks),
                quantised=self._quantised_file,
                kept=kept,
                beside=other,
                digests=JobFiles.digests(path, other),
            )
        )

    def packing(self, candidate: Candidate) -> str:
        """Return a name of the layout in which a program wants its weights; it replays the program, once."""
        sketch = self._sketches.get(candidate.sketch)
        if sketch is None:  # the untuned program takes them as they are
            return ""
        if candidate not in self._packings:
            spec, _ = self._ready()
            target = tvm.target.Target(_target(spec))
            try:
                scheduled = apply_candidate(self._modules[candidate.workload], sketch, candidate, target)
                self._packings[candidate] = packing_of(scheduled)
            except BuildError:
                self._packings[candidate] = candidate.digest
        return self._packings[candidate]

    def explain(self) -> str:
        """Return the first of the user's nodes that cannot be compiled or computes something else; empty if unknown."""
        spec, networks = self._ready()
        target = tvm.target.Target(_target(spec))
        if networks.hybrid is not None:
            return first_wrong_node(networks, networks.hybrid, spec)
        given = {load_fitting(networks.combinations, path)[0]: path for path in reversed(spec.input_files)}
        for number, network in enumerate(networks.networks):
            model = load(network.ref)
            if culprit := first_uncompilable(model, target):
                return culprit
            path, seed = given.get(number), spec.options.seed
            inputs = draw_inputs(model.inputs, seed) if path is None else load_inputs(path)
            extremes = extreme_inputs(model.inputs, seed, given=inputs, keep_integers=path is not None)
            for tried in (inputs, *(each.arrays for each in extremes if each.tells_everything)):
                if culprit := first_wrong(model, target, tried):
                    return culprit
        return ""

    def package(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        untuned: bool = True,
    ) -> Packaged:
        """Compile the network with the chosen programs, and after a search once more untuned if that is wanted; write
        both beside the output.
        """
        spec, networks = self._ready()
        tuned = f"{spec.output}{UNPROVEN}"
        named, _ = self._named()
        kept = self._save(tuned, chosen, kernels, keeping=keeping)
        reference: str | None = None
        if untuned and networks.networks and spec.options.search:  # else onnxruntime runs it all, or nothing is timed
            with contextlib.suppress(BuildError):
                self._save(f"{spec.output}{UNTUNED_FILE}", {}, kernels)
                reference = f"{spec.output}{UNTUNED_FILE}"
        return Packaged(
            tuned=tuned,
            chosen={workload: candidate.digest for workload, candidate in chosen.items()},
            untuned=reference,
            onnx=named.onnx,
            exported=named.exported,
            constants=networks.constants,
            hybrid=_is_hybrid(spec, networks),
            quantised=self._quantised_file,
            kept=kept,
            digests=JobFiles.digests(tuned, reference),
        )

    def kept(self, packaged: Packaged) -> bool:
        """Return whether what an earlier process of this job wrote is still there, unchanged, at the current output."""
        if self._spec is None or packaged.tuned != f"{self._spec.output}{UNPROVEN}":
            return False
        files = (packaged.tuned, packaged.untuned, packaged.beside, *packaged.each_alone)
        digests = JobFiles.digests(*files)
        return digests == packaged.digests and all(digests.values())

    def set_apart(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> PerProgramCheck:
        """Compile the networks that compute each subgraph a second time, untuned, and write them beside the output."""
        spec, networks = self._ready()
        if networks.hybrid is not None or networks.opened is not None:  # their subgraphs are not compared alone
            return PerProgramCheck((), tuple(sorted(chosen)))
        paths: list[str | None] = []
        compared: set[str] = set()
        for number, network in enumerate(networks.networks):
            own = set(network.lowered.functions.values()) - compared
            tuned = {workload for workload in own if workload in chosen and chosen[workload].sketch != UNTUNED}
            here, _ = choose_alone(network.lowered, tuned)
            paths.append(None)
            if not here:
                continue
            path = f"{spec.output}{ALONE_FILE}{number or ''}"
            try:
                alone = side_by_side(network.lowered, here)
                shaped = Combination(network.combination.inputs, alone.outputs)
                self._save(path, chosen, kernels, [(alone.lowered, shaped)])
            except Exception:  # the compiler raises any kind of exception; the proof is possible without it
                traceback.print_exc()
                continue
            paths[-1] = path
            compared |= here
        left_out = {workload for workload, candidate in chosen.items() if candidate.sketch != UNTUNED} - compared
        return PerProgramCheck(tuple(paths), tuple(sorted(left_out)), JobFiles.digests(*paths))

    @property
    def _quantised_file(self) -> str | None:
        """The quantised model, if there is one that has quantised layers."""
        made = self._quantised
        if made is None or self._spec is None or not made.quantised.int8:
            return None
        return f"{self._spec.output}{QUANTISED_FILE}"

    def _ready(self) -> tuple[JobSpec, Networks]:
        """What was prepared.

        Raises:
            OrderError: nothing was.
        """
        if self._spec is None or self._networks is None:
            raise OrderError("prepare the model before compiling it")
        return self._spec, self._networks

    def _named(self) -> tuple[BaselineModel, tuple[str, ...]]:
        """The user's model and inputs, as the front calls them."""
        _, networks = self._ready()
        assert self._files is not None
        named = self._files.named
        return BaselineModel(onnx=named(networks.onnx_path), exported=named(networks.exported_path)), self._files.inputs

    def _save(
        self,
        path: str,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        built: Sequence[tuple[Lowered, Combination]] = (),
        *,
        keeping: Keeping = Keeping.NONE,
    ) -> int:
        """Build all networks with these programs, or those in `built`, made from them; hand them over as `path`.

        Returns the number of tensors that are kept in bf16.
        """
        kept = self._write(JobFiles.place_of(path), chosen, kernels, built, keeping)
        for each in (path, f"{path}{BOARD_FILE}"):
            JobFiles.hand_over(each)
        return kept

    def _write(
        self,
        path: str,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        given: Sequence[tuple[Lowered, Combination]],
        keeping: Keeping,
    ) -> int:
        """Build the networks, or those `given`, and write them to `path`; return the number of tensors kept in bf16."""
        spec, networks = self._ready()
        programs = {w: (self._sketches[c.sketch], c) for w, c in chosen.items() if c.sketch != UNTUNED}
        target = tvm.target.Target(_target(spec))
        if networks.hybrid is not None and not given:
            with folder_beside(Path(path), "kintune-regions-") as directory:
                files, kept = [], 0
                precisions = [self._precisions([network], chosen) for network in networks.networks]
                for number, network in enumerate(networks.networks):
                    name = f"{networks.name} {network.label}"
                    manifest = self._manifest(name, network.digest, network.combination, chosen)
                    files.append(Path(directory, f"region{number}.kt"))
                    region = build_executable(
                        network.lowered, programs, target, manifest, kernels, keeping=keeping, threads=spec.cores
                    )
                    region.save(files[-1])
                    kept += _kept_tensors(region.manifest)
                manifest = self._manifest(networks.name, networks.digest, networks.hybrid.combination, chosen)
                write_partitioned(path, manifest, networks, networks.hybrid.partition, files, spec, precisions)
            return kept
        whole = not given and spec.options.other_shapes == "onnxruntime"
        built = given or [(network.lowered, network.combination) for network in networks.networks]
        first, *more = (shaped for _, shaped in built)
        manifest = self._manifest(networks.name, networks.digest, first, chosen, more)
        reused = sum(candidate.digest in kernels for candidate in chosen.values())
        functions = {workload for lowered, _ in built for workload in lowered.functions.values()}
        _log.info(f"{reused} of {len(functions)} kernels were compiled already")
        made: Executable | VmExecutable
        if networks.opened is not None and not given:
            made = networks.opened.build(programs, manifest, threads=spec.cores)
        elif len(built) > 1:
            networks_built = (lowered for lowered, _ in built)
            made = build_plans(networks_built, programs, target, manifest, kernels, keeping=keeping, threads=spec.cores)
        else:
            made = build_executable(
                built[0][0], programs, target, manifest, kernels, keeping=keeping, threads=spec.cores
            )
        made.save(path)
        kept = _kept_tensors(made.manifest)
        if whole:
            take_other_shapes(path, manifest, networks, self._precisions(networks.networks, chosen))
        if len(built) > 1:
            return kept
        ((lowered, _),) = built
        if spec.device_type.capabilities.remote:
            build_vm_executable(lowered, programs, target, manifest, kernels).save(f"{path}{BOARD_FILE}")
        return kept

    def _manifest(
        self,
        name: str,
        digest: str,
        shaped: Combination,
        chosen: Mapping[str, Candidate],
        more: Sequence[Combination] = (),
    ) -> Manifest:
        spec, networks = self._ready()
        return describe_build(
            model_name=name,
            model_digest=digest,
            target=spec.device_type.target,
            threads=spec.protocol.threads,
            inputs=shaped.inputs,
            outputs=shaped.outputs,
            checks=shaped.checks,
            chosen={workload: candidate.digest for workload, candidate in chosen.items()},
            cpu=spec.device_type.model,
            more=more,
            sketches=[self._sketches[each.sketch] for each in chosen.values() if each.sketch != UNTUNED],
            narrow=self._narrow(chosen),
            keep_denormals=spec.options.keep_denormals,
            exporter=networks.exporter,
        )

    def _precisions(self, networks: Sequence[ShapedNetwork], chosen: Mapping[str, Candidate]) -> dict[str, int]:
        """How many subgraphs of some networks compute in which precision."""
        narrow_sketches = narrow(list(self._sketches.values()))
        kinds = {w: narrow_sketches.get(c.sketch, FULL_PRECISION) for w, c in chosen.items()}
        kinds.update(dict.fromkeys(self._on_bytes, INT8))
        workloads = {workload for network in networks for workload in network.lowered.functions.values()}
        return dict(sorted(Counter(kinds.get(workload, FULL_PRECISION) for workload in workloads).items()))

    def _narrow(self, chosen: Mapping[str, Candidate]) -> Narrow | None:
        """What is said of these programs in a manifest: which compute narrower than the model's types."""
        spec, networks = self._ready()
        sketches = list(self._sketches.values())
        precisions = narrow(sketches)
        titles = {subgraph.workload: subgraph.title for subgraph in networks.subgraphs(sketches)}
        found = {titles[w]: precisions[c.sketch] for w, c in chosen.items() if c.sketch in precisions}
        made = None if self._quantised_file is None or self._quantised is None else self._quantised.quantised
        return Narrow(found, spec.options.max_error, quantised=made) if found or made else None


def _without_program(
    workloads: Sequence[StandaloneWorkload], every: Sequence[Sketch], left: Sequence[Sketch]
) -> Iterator[str]:
    """A note on what takes time, and has sketches for known extents alone."""
    lost = {each.workload for each in every} - {each.workload for each in left}
    operations = {each.digest: each.flops * each.occurrences for each in workloads}
    least = _NOTICEABLE * sum(operations.values())
    named = [each.name for each in workloads if each.digest in lost and operations[each.digest] > least]
    if named:
        told = ", ".join(named[:_MOST_TOLD]) + (", and others" if len(named) > _MOST_TOLD else "")
        yield (
            f"{len(named)} of {len(workloads)} subgraphs have no program for open extents, and run as the compiler "
            f"makes them, which may be slow: {told}"
        )


def _kept_tensors(manifest: Manifest) -> int:
    """The tensors of a file that are kept in bf16."""
    return 0 if manifest.narrow is None else manifest.narrow.kept_tensors


def _is_hybrid(spec: JobSpec, networks: Networks) -> bool:
    """Whether the result may run partly in onnxruntime."""
    return networks.hybrid is not None or spec.options.other_shapes == "onnxruntime"


def _target(spec: JobSpec) -> dict[str, object]:
    target: dict[str, object] = json.loads(spec.device_type.target)
    return target
