"""Builds executables, which can be run and saved, from lowered networks and the chosen programs."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import tvm

from kintune.compiler.graph.assemble import PlannedProgram, assemble, assemble_plan
from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.open_plan import LoweredPoint, assemble_open
from kintune.compiler.kernels.instructions import BY_TEXT
from kintune.compiler.programs.registry import instructions_of
from kintune.core.candidate import Candidate, Sketch
from kintune.core.capabilities import capabilities_of
from kintune.core.execution_plan import OpenExtent
from kintune.core.keeping import Keeping
from kintune.core.kernel_call import own_kernel
from kintune.core.model import Combination, IndexCheck, Tensor
from kintune.core.stage_requests import Built, kernel_name
from kintune.core.version import __version__
from kintune.errors import BuildError
from kintune.runtime.executable import CompiledPlan, Executable
from kintune.runtime.guarded_run import try_kernels
from kintune.runtime.package import Manifest, Narrow
from kintune.runtime.requirements import why_none_here
from kintune.runtime.target import architecture_of, capabilities, instruction_set
from kintune.runtime.tensors import block_of
from kintune.runtime.vm_executable import VmExecutable
from kintune.search.sketch_program import program_of

__all__ = ["build_executable", "build_open", "build_plans", "build_vm_executable", "describe_build"]

_log = logging.getLogger(__name__)


def describe_build(
    *,
    model_name: str,
    model_digest: str,
    target: str,
    threads: int,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    chosen: Mapping[str, str],
    checks: Iterable[IndexCheck] = (),
    cpu: str = "",
    more: Iterable[Combination] = (),
    sketches: Iterable[Sketch] = (),
    narrow: Narrow | None = None,
    keep_denormals: bool = False,
    exporter: str = "",
) -> Manifest:
    """The manifest of a network that is built now, with the versions of this Kintune and this TVM.

    `target` is a canonical target (see `kintune.runtime.target`).  The manifest lists the extensions of the target that
    the programs may use; those of `BY_TEXT` only if one of `sketches`, those of the chosen programs, uses them.

    `cpu` is the name of the CPU on which the programs were chosen, if it is known.  `narrow` says which of them compute
    in narrower types than the model's.  Denormal numbers are flushed to zero unless `keep_denormals`.  `exporter` is as
    in `Manifest`.
    """
    return Manifest(
        model_name=model_name,
        model_digest=model_digest,
        target=target,
        machine=architecture_of(tvm.target.Target(json.loads(target))),
        isa=_instructions(target, sketches),
        threads=threads,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        chosen=dict(chosen),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        kintune=__version__,
        tvm=str(tvm.__version__),
        checks=tuple(checks),
        cpu=cpu if capabilities_of(target).plans else "",
        more=tuple(more),
        narrow=narrow,
        keep_denormals=keep_denormals,
        exporter=exporter,
    )


def _instructions(target: str, sketches: Iterable[Sketch]) -> tuple[str, ...]:
    """The extensions that the kernels of a file may use."""
    written = {name for sketch in sketches for name in instructions_of(program_of(sketch))}
    return tuple(sorted(set(instruction_set(target)) - BY_TEXT | written))


def build_executable(
    lowered: Lowered,
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    manifest: Manifest,
    kernels: Mapping[str, Built] | None = None,
    *,
    keeping: Keeping = Keeping.NONE,
    threads: int = 1,
) -> Executable | VmExecutable:
    """Compile the network as `assemble_plan` does, or, for a GPU, as `assemble` does.

    For a CPU, `keeping` says whether tensors between kernels are kept in bf16, and kernels are compiled on so many
    `threads`.

    Raises:
        BuildError: when a program cannot be applied, or the network cannot be compiled, planned or linked.
        OrderError: when the linker, or the compiler for GPU programs, is missing.
    """
    if not capabilities(target).plans:
        return build_vm_executable(lowered, chosen, target, manifest, kernels)
    return build_plans([lowered], chosen, target, manifest, kernels, keeping=keeping, threads=threads)


def build_plans(
    networks: Iterable[Lowered],
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    manifest: Manifest,
    kernels: Mapping[str, Built] | None = None,
    *,
    keeping: Keeping = Keeping.NONE,
    threads: int = 1,
) -> Executable:
    """Compile a network for each of the manifest's combinations of shapes, in their order, as `assemble_plan` does.

    `keeping` and `threads` are as for `build_executable`.

    Raises:
        BuildError: as for `build_executable`.
        OrderError: as for `build_executable`.
    """

    workloads: list[dict[str, str]] = []

    def compiled() -> Iterator[CompiledPlan]:
        for lowered, shaped in zip(networks, manifest.combinations, strict=True):
            workloads.append(dict(lowered.functions))
            program = assemble_plan(
                lowered,
                {workload: chosen[workload] for workload in set(lowered.functions.values()) if workload in chosen},
                target,
                kernels,
                inputs=shaped.inputs,
                outputs=shaped.outputs,
                checks=shaped.checks,
                keeping=keeping,
                threads=threads,
            )
            yield _compiled_plan(program)

    made = Executable.create_from_plans(compiled(), manifest)
    linked = {kernel_name(candidate.digest): workload for workload, (_, candidate) in chosen.items()}
    return _tried(made, [{**of_plan, **linked} for of_plan in workloads])


def _compiled_plan(program: PlannedProgram) -> CompiledPlan:
    weights = map(block_of, program.weights)
    return CompiledPlan(program.plan, program.library, weights, program.calls, program.kept, program.bounds)


def build_open(
    points: Sequence[LoweredPoint],
    dimensions: Sequence[OpenExtent],
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    manifest: Manifest,
    drawn: Iterable[dict[str, tuple[int, ...]]] = (),
    *,
    threads: int = 1,
) -> Executable:
    """Compile a network for any extents of its open dimensions, as `assemble_open` does.

    The manifest gets the ranges of outputs, and as shapes to compare at those of `drawn`.

    Raises:
        BuildError: as for `assemble_open`, or a kernel accesses memory that is not its own.
        MorePoints: as for `assemble_open`.
        OrderError: as for `build_executable`.
    """
    program = assemble_open(points, dimensions, chosen, target, threads=threads)
    manifest = msgspec.structs.replace(manifest, outputs=program.plan.outputs, drawn=tuple(drawn))
    made = Executable.create_from_plans([_compiled_plan(program)], manifest)
    return _tried(made, [points[-1].lowered.functions])


def _tried(made: Executable, workloads: Sequence[Mapping[str, str]]) -> Executable:
    """The executable, whose kernels that are not proven in bounds have run between guard pages, if it runs here.

    `workloads` has those of the kernels of each plan, by name.

    Raises:
        BuildError: when a kernel accesses memory that is not its own.
    """
    bounds = made.manifest.bounds
    if not any(each.unproven for each in bounds) or why_none_here(made.variants) is not None:
        return made
    known = []
    for number, of_plan in enumerate(bounds):
        tried: Collection[str] = ()
        if of_plan.unproven:
            try:
                wrong = try_kernels(made, number, of_plan.unproven)
                tried = of_plan.unproven
            except RuntimeError as error:
                wrong = ""
                _log.warning(f"kernels cannot run between guard pages: {error}")
            if wrong:
                name = own_kernel(wrong.split()[0])
                raise BuildError(wrong, {workloads[number][name]} if name in workloads[number] else frozenset())
        known.append(of_plan.with_tried(tried))
    return made.described(msgspec.structs.replace(made.manifest, bounds=tuple(known)))


def build_vm_executable(
    lowered: Lowered,
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    manifest: Manifest,
    kernels: Mapping[str, Built] | None = None,
) -> VmExecutable:
    """Compile the network for TVM's virtual machine, as `assemble` does.

    Raises:
        BuildError: as for `build_executable`.
        OrderError: as for `build_executable`.
    """
    program = assemble(lowered, chosen, target, kernels)
    return VmExecutable.create(program.executable, program.weights, manifest, program.object_files)
