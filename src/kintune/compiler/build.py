"""Builds candidates: replays the schedule, compiles and links it; the result is the bytes of a shared library."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import msgspec
import tvm
from tvm.tirx.buffer import BufferType

from kintune.compiler.bounds import keeping_lowered, prove
from kintune.compiler.faults import build_for
from kintune.compiler.graph.own_rules import own_rules
from kintune.compiler.programs.registry import instructions_of
from kintune.compiler.space.generator import default_schedule, load_intrinsics
from kintune.compiler.space.packing import without_packing
from kintune.compiler.space.replay import Replayer, apply_candidate, load_workload, weight_positions
from kintune.compiler.tir import nodes_in
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.stage_requests import BuildContext, Built, KernelArgument, kernel_name
from kintune.errors import BuildError, KintuneError, cause_line
from kintune.runtime.artifact import Linked, link_program
from kintune.runtime.cuda_codegen import compiling_for
from kintune.runtime.target import architecture_of, capabilities, untuned_target
from kintune.search.sketch_program import precision_of, program_of

__all__ = ["ENTRY", "CandidateBuilder", "build_candidate", "build_module", "operands_of"]


ENTRY = "main"
"""The function that every artifact exports."""

_OPTIMISATION = 3


def build_candidate(target: tvm.target.Target, workload: bytes, sketch: Sketch | None, candidate: Candidate) -> Built:
    """Build one candidate of a serialised workload; without a sketch, the workload under the default schedule.

    Raises:
        BuildError: when the candidate is no valid program, or does not compile; the message is one line.
    """
    module = load_workload(workload)
    scheduled = apply_candidate(module, sketch, candidate, target)
    return build_module(
        untuned_target(target) if sketch is None else target, module, scheduled, candidate.digest, sketch
    )


def build_module(
    target: tvm.target.Target,
    workload: tvm.IRModule,
    scheduled: tvm.IRModule,
    candidate: str,
    sketch: Sketch | None = None,
) -> Built:
    """Compile `scheduled`, a schedule of `workload` (each with one function, `main`).

    `candidate` is the digest of the candidate, and `sketch` its sketch; None for the untuned program.

    Raises:
        BuildError: when it does not compile or link, or its arguments are not buffers of constant shape.
    """
    try:
        packed = without_packing(scheduled)
        operands = operands_of(workload[ENTRY], packed[ENTRY])
        linked, unproven = build_for(target, lambda chosen: _compile(packed, chosen, kernel_name(candidate)))
    except KintuneError:
        raise
    except Exception as error:  # lowering and LLVM raise many types for a bad schedule
        raise BuildError(f"{type(error).__name__}: {cause_line(error)}") from error
    built = Built(candidate, linked.library, operands, object_file=linked.object_file, unproven=unproven)
    if sketch is None:
        return built
    return msgspec.structs.replace(
        built, precision=precision_of(sketch), instructions=instructions_of(program_of(sketch))
    )


def operands_of(workload: Any, scheduled: Any) -> tuple[KernelArgument, ...]:
    """The arguments of `scheduled`, a schedule of the function `workload`, in call order.

    Roles are the workload's: outputs are the buffers it writes, weights those it lets a schedule lay out
    (`layout_free_buffers`).  Shapes are the schedule's, in which weights may be packed.

    Raises:
        BuildError: when an argument is not a buffer, or a shape is not constant.
    """
    written = [store.buffer for store in nodes_in(workload.body, tvm.tirx.BufferStore)]
    weights = weight_positions(workload)
    operands = []
    for position, (parameter, laid_out) in enumerate(zip(workload.params, scheduled.params, strict=True)):
        if not isinstance(laid_out.ty, BufferType):
            raise BuildError(f"not a buffer: argument {position} ({laid_out.name})")
        if any(buffer.same_as(parameter) for buffer in written):
            role = "output"
        else:
            role = "weight" if position in weights else "activation"
        operands.append(_operand(laid_out, role))
    return tuple(operands)


def _operand(buffer: Any, role: str) -> KernelArgument:
    try:
        shape = tuple(int(extent) for extent in buffer.shape)
    except TypeError as error:
        raise BuildError(f"not a constant shape: {buffer.name} is {buffer.shape}") from error
    return KernelArgument(shape=shape, dtype=str(buffer.dtype), role=role)


def _compile(module: tvm.IRModule, target: tvm.target.Target, name: str) -> tuple[Linked, tuple[str, ...] | None]:
    """Compile to a shared library with the function `name`; TVM exports it as `main` too, since it is the only one.

    The function does not check its arguments: the code for that takes longer to compile than many kernels.  Returns as
    well what may lie outside of its buffers, if it is for a CPU.
    """
    plans = capabilities(target).plans
    if plans:
        module = tvm.IRModule({ENTRY: module[ENTRY].with_attr("global_symbol", name)}, attrs=module.attrs)
    passes = keeping_lowered(opt_level=_OPTIMISATION, config={"tirx.disable_assert": True})
    with passes as functions, own_rules(target), compiling_for(target):
        executable = tvm.compile(module, target)
    linked = link_program(executable, architecture_of(target))
    if not plans:
        return linked._replace(object_file=b""), None
    return linked, prove(functions[ENTRY]).unproven


class CandidateBuilder:
    """Builds candidates for one target.

    A workload is parsed, and its replayer set up, once; the `capacity` workloads used last are kept.
    """

    def __init__(self, target: str, capacity: int = 32) -> None:
        """`target` is a canonical target, as JSON."""
        self._target = tvm.target.Target(json.loads(target))
        load_intrinsics(architecture_of(self._target))
        self._capacity = capacity
        self._replayers: OrderedDict[str, Replayer] = OrderedDict()

    def build(self, context: BuildContext, candidate: Candidate) -> Built:
        """Build one candidate of a stage.

        Raises:
            BuildError: when `context` lacks its workload or sketch, or it is no program that compiles.
        """
        replayer, target = self._replayer(context, candidate.workload), self._target
        sketch = context.sketches.get(candidate.sketch)
        if candidate.sketch == UNTUNED:
            sketch, target = None, untuned_target(target)
            scheduled = default_schedule(replayer.module, target)
        elif sketch is not None:
            scheduled = replayer(sketch, candidate).schedule.mod
        else:
            raise BuildError(f"the stage has no sketch {candidate.sketch}, which candidate {candidate.digest} fills in")
        return build_module(target, replayer.module, scheduled, candidate.digest, sketch)

    def _replayer(self, context: BuildContext, workload: str) -> Replayer:
        replayer = self._replayers.get(workload)
        if replayer is None:
            if workload not in context.workloads:
                raise BuildError(f"the stage has no workload {workload}")
            replayer = self._replayers[workload] = Replayer(load_workload(context.workloads[workload]), self._target)
        self._replayers.move_to_end(workload)
        while len(self._replayers) > self._capacity:
            self._replayers.popitem(last=False)
        return replayer
