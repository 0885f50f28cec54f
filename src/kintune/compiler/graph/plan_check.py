"""Checks an execution plan: tensors lie inside of their memory, and memory in use at once is not shared.

`prove_plan` also follows through the plan what integers its tensors hold, since kernels read and write by indices that
other kernels compute.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kintune.compiler.bounds import Interval, Proof
from kintune.core.dtypes import numpy_dtype
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, Operation, PlannedTensor
from kintune.core.kernel_bounds import KernelBounds
from kintune.errors import BuildError
from kintune.runtime.package import ALIGNMENT

__all__ = ["check_plan", "prove_plan"]

_WIDE = 4  # bytes of integers of which it is worth to know the values: narrower ones are known well enough

Prover: TypeAlias = Callable[[str, Mapping[int, Interval]], Proof]
"""A function that gives the proof of a kernel, by its name and the intervals of its parameters of integers."""


def check_plan(plan: ExecutionPlan, blocks: Sequence[int]) -> None:
    """Check the places of all tensors of a plan; `blocks` has the number of the block of memory of each tensor.

    Raises:
        BuildError: when a tensor lies outside of its memory, or two blocks of the arena that are in use at once share
            bytes.  Either is a fault of Kintune's.
    """
    for number, tensor in enumerate(plan.tensors):
        if (why := _outside(plan, tensor)) is not None:
            raise BuildError(f"a fault of the planner: tensor {number} {why}")
    uses: dict[int, list[int]] = {}
    for place, operation in enumerate(plan.operations):
        for number in _tensors_of(operation):
            if plan.tensors[number].place == "arena":
                uses.setdefault(blocks[number], []).append(place)
    spans: dict[int, tuple[int, int]] = {}
    for number, tensor in enumerate(plan.tensors):
        if tensor.place == "arena" and tensor.nbytes:
            start, end = spans.get(blocks[number], (tensor.offset, tensor.offset))
            spans[blocks[number]] = min(start, tensor.offset), max(end, tensor.offset + tensor.nbytes)
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for block, places in uses.items():
        if block in spans:
            begins.setdefault(min(places), []).append(block)
            ends.setdefault(max(places) + 1, []).append(block)
    live: list[tuple[int, int]] = []  # the spans in use, which do not overlap
    for place in range(len(plan.operations)):
        for block in ends.get(place, ()):
            live.remove(spans[block])
        for block in begins.get(place, ()):
            at = bisect_left(live, spans[block])
            neighbours = live[max(at - 1, 0) : at + 1]
            if any(start < spans[block][1] and spans[block][0] < end for start, end in neighbours):
                raise BuildError(
                    f"a fault of the planner: bytes {spans[block][0]} to {spans[block][1]} of the arena are used by two"
                    f" tensors in operation {place}"
                )
            insort(live, spans[block])


def _outside(plan: ExecutionPlan, tensor: PlannedTensor) -> str | None:
    """What is wrong with the place of a tensor."""
    if tensor.place in ("input", "output"):
        ports = plan.input_tensors if tensor.place == "input" else plan.output_tensors
        if not 0 <= tensor.offset < len(ports):
            return f"is {tensor.place} {tensor.offset} of {len(ports)}"
        whole = plan.tensors[ports[tensor.offset]].nbytes
        return None if tensor.nbytes <= whole else f"has {tensor.nbytes} bytes, and {tensor.place} has {whole}"
    if tensor.offset < 0 or tensor.offset % ALIGNMENT:
        return f"begins at byte {tensor.offset}"
    if tensor.place == "arena" and tensor.offset + tensor.nbytes > plan.arena_bytes:
        return f"ends at byte {tensor.offset + tensor.nbytes} of an arena of {plan.arena_bytes}"
    return None


def _tensors_of(operation: Operation) -> tuple[int, ...]:
    match operation:
        case KernelCall():
            return operation.tensors
        case Copy():
            return operation.source, operation.target
        case Branch():
            return (operation.condition,)
    return ()


class _Held(NamedTuple):
    """Integers of a type in the bytes from `start` to `end`, and their interval."""

    start: int
    end: int
    dtype: str
    values: Interval


class _Memory:
    """What is known of the integers in the arena, and in each output."""

    def __init__(self, held: Mapping[tuple[str, int], Sequence[_Held]] | None = None) -> None:
        self._held = {key: list(each) for key, each in (held or {}).items()}

    def copy(self) -> _Memory:
        return _Memory(self._held)

    def write(self, tensor: PlannedTensor, values: Interval | None) -> None:
        """Note that a tensor was written, with integers in this interval if it is known."""
        key, start, end = _bytes_of(tensor)
        kept = [each for each in self._held.get(key, ()) if each.end <= start or end <= each.start]
        if values is not None:
            insort(kept, _Held(start, end, tensor.dtype, values))
        self._held[key] = kept

    def read(self, tensor: PlannedTensor) -> Interval | None:
        """The interval of a tensor's elements; it may consist of parts that were written one by one."""
        key, start, end = _bytes_of(tensor)
        at, found = start, []
        for each in self._held.get(key, ()):
            if each.start == at and each.end <= end and each.dtype == tensor.dtype:
                found.append(each.values)
                at = each.end
        if at != end or not found:
            return None
        return min(low for low, _ in found), max(high for _, high in found)

    def joined(self, other: _Memory) -> _Memory:
        """What is known where it is not known which of the two it is."""
        held = {}
        for key, mine in self._held.items():
            theirs = {each[:3]: each.values for each in other._held.get(key, ())}
            held[key] = [
                each._replace(values=(min(each.values[0], low), max(each.values[1], high)))
                for each in mine
                if (values := theirs.get(each[:3])) is not None
                for low, high in (values,)
            ]
        return _Memory(held)


def _bytes_of(tensor: PlannedTensor) -> tuple[tuple[str, int], int, int]:
    if tensor.place == "arena":
        return ("arena", 0), tensor.offset, tensor.offset + tensor.nbytes
    return (tensor.place, tensor.offset), 0, tensor.nbytes


def prove_plan(
    plan: ExecutionPlan, prover: Prover, weights: Callable[[PlannedTensor], Interval | None]
) -> KernelBounds:
    """Prove all kernels of a plan in bounds; `weights` gives the interval of the elements of a weight of integers.

    The runtime checks the bounds of inputs before a run.
    """
    unproven: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    memory: _Memory | None = _Memory()
    waiting: dict[int, list[_Memory]] = {}

    def values_of(tensor: PlannedTensor, known: _Memory) -> Interval | None:
        if numpy_dtype(tensor.dtype).kind not in "iu" or numpy_dtype(tensor.dtype).itemsize < _WIDE:
            return None
        if tensor.place == "weights":
            return weights(tensor)
        if tensor.place == "input":
            port = plan.inputs[tensor.offset]
            return port.bounds if port.dtype == tensor.dtype else None
        return known.read(tensor)

    for place, operation in enumerate(plan.operations):
        for other in waiting.pop(place, ()):
            memory = other if memory is None else memory.joined(other)
        known = _Memory() if memory is None else memory  # nothing leads to an operation without
        match operation:
            case KernelCall():
                tensors = [plan.tensors[number] for number in operation.tensors]
                each = ((position, values_of(tensor, known)) for position, tensor in enumerate(tensors))
                proof = prover(operation.kernel, {position: values for position, values in each if values is not None})
                names.add(operation.kernel)
                if proof.unproven:
                    before = unproven.get(operation.kernel, ())
                    unproven[operation.kernel] = tuple(dict.fromkeys((*before, *proof.unproven)))
                for position in proof.written:
                    known.write(tensors[position], proof.results.get(position))
            case Copy():
                source, target = plan.tensors[operation.source], plan.tensors[operation.target]
                known.write(target, values_of(source, known) if source.dtype == target.dtype else None)
            case Branch():
                waiting.setdefault(operation.otherwise, []).extend([] if memory is None else [memory.copy()])
            case Jump():
                waiting.setdefault(operation.target, []).extend([] if memory is None else [memory])
                memory = None
    return KernelBounds(len(names), unproven)
