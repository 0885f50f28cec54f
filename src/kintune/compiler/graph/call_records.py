"""Describes each kernel call of a plan: the user's nodes that it computes, its operations and its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kintune.compiler.graph.provenance import KernelOrigin, mark_of
from kintune.compiler.graph.rewriting import kernel_calls
from kintune.compiler.graph.strided_pieces import PLACED
from kintune.compiler.programs.registry import flops_of
from kintune.core.candidate import FULL_PRECISION, UNTUNED, Candidate, Sketch
from kintune.core.execution_plan import ExecutionPlan, KernelCall, PlannedTensor
from kintune.core.kernel_call import CallRecord
from kintune.core.quantisation import INT8
from kintune.search.sketch_program import precision_of, program_of

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered
    from kintune.compiler.graph.workload import StandaloneWorkload

__all__ = ["PACKED", "called_functions", "describe_calls"]

_PARTIAL = frozenset({"take", "gather_elements", "gather_nd", "strided_slice"})
"""Operators that read at most as much of an operand as they write."""

PACKED = "_prepacked"
"""The suffix that TVM adds to the name of a kernel that reads packed weights."""


def describe_calls(
    plan: ExecutionPlan,
    kernels: Mapping[int, int],
    lowered: Lowered,
    chosen: Mapping[str, tuple[Sketch, Candidate]],
) -> tuple[CallRecord, ...]:
    """A record of each kernel call of the plan; `kernels` maps places in the plan to numbers of kernels in `lowered`.

    `chosen` has the programs by workload digest; a program may do less arithmetic than its workload.

    Raises:
        BuildError: when this version of Kintune does not have a program that was chosen.
    """
    functions = called_functions(lowered)
    facts = {workload.digest: workload for workload in lowered.workloads}
    named = {digest: _program(chosen.get(digest)) for digest in facts}
    flops = {digest: flops_of(each.module, each.flops, named[digest]) for digest, each in facts.items()}
    records = []
    for place, operation in enumerate(plan.operations):
        if not isinstance(operation, KernelCall):
            continue
        number = kernels.get(place, -1)
        origin = lowered.origins[number] if 0 <= number < len(lowered.origins) else KernelOrigin()
        function = functions.get(number, operation.kernel.removesuffix(PACKED))
        workload = facts.get(lowered.functions.get(function, ""))
        tensors = [plan.tensors[tensor] for tensor in operation.tensors]
        most = max(tensors[-1].nbytes, 1) if _PARTIAL.intersection(origin.operators) else None
        moved = _moved(tensors, most)
        record = CallRecord(
            place=place,
            kernel=operation.kernel,
            nodes=origin.nodes,
            operators=origin.operators,
            inserted=origin.inserted,
            flops=flops[workload.digest] if workload else 0.0,
            nbytes=min(workload.bytes, moved) if workload and PLACED in operation.kernel else moved,
            weight_bytes=_moved([tensor for tensor in tensors if tensor.place == "weights"], most),
            precision=_precision(workload, chosen.get(workload.digest)) if workload else FULL_PRECISION,
            program=named[workload.digest] if workload else "",
        )
        records.append(record)
    return tuple(records)


def _program(chosen: tuple[Sketch, Candidate] | None) -> str:
    """The name of the program that was chosen for a workload; empty for others than those of our own."""
    return "" if chosen is None or chosen[1].sketch == UNTUNED else program_of(chosen[0])


def _precision(workload: StandaloneWorkload, chosen: tuple[Sketch, Candidate] | None) -> str:
    """The precision of the multiplications in the kernel of a workload."""
    if workload.sums_bytes:
        return INT8
    return FULL_PRECISION if chosen is None or chosen[1].sketch == UNTUNED else precision_of(chosen[0])


def _moved(tensors: Sequence[PlannedTensor], most: int | None) -> float:
    """The total bytes of tensors; each counts for at most `most`, if that is given."""
    return float(sum(tensor.nbytes if most is None else min(tensor.nbytes, most) for tensor in tensors))


def called_functions(lowered: Lowered) -> dict[int, str]:
    """The names of the functions that `main` calls, by the number with which the call is marked."""
    numbered = ((mark_of(call), str(call.args[0].name_hint)) for call in kernel_calls(lowered.module))
    return {number: name for number, name in numbered if number is not None}
