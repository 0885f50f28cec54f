"""Assembles a network that was lowered at some extents of its open dimensions to one plan for all extents.

Passes work on numbers, so each point of the range goes through them by itself.  At the end, `generalise` makes one
kernel of those of all points, and the plans of the points become one whose numbers are formulas.  The arena is that of
the greatest extents: memory that is large enough for these is large enough for all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import tvm

from kintune.compiler.bounds import Interval, Proof, prove
from kintune.compiler.graph.arena import place_in_a_row
from kintune.compiler.graph.assemble import PlannedProgram, compiling, in_kernels, scheduled_with, with_a_kernel
from kintune.compiler.graph.call_records import called_functions, describe_calls
from kintune.compiler.graph.generalise import Points, Unlike, generalise
from kintune.compiler.graph.kernel_library import build_kernels
from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.own_rules import own_rules
from kintune.compiler.graph.pieces import JOINS, SLICES
from kintune.compiler.graph.plan import Planned, plan_network
from kintune.compiler.graph.plan_check import prove_plan
from kintune.compiler.kernels.loops import index
from kintune.compiler.programs.registry import program_named
from kintune.compiler.space.generator import default_schedules
from kintune.compiler.space.replay import apply_candidate
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, KernelCall, OpenExtent, OpenExtents, Operation
from kintune.core.extents import Formula
from kintune.core.model import Combination, Tensor
from kintune.errors import BuildError
from kintune.runtime.tensors import block_of
from kintune.search.sketch_program import program_of

__all__ = ["LoweredPoint", "MorePoints", "assemble_open", "check_open", "is_open", "modules_at"]

_NUMBERS = re.compile(r"\d+")


class LoweredPoint(NamedTuple):
    """A network as it was lowered for these extents of its open dimensions, counted in steps."""

    extents: Mapping[str, int]
    lowered: Lowered
    shaped: Combination


class MorePoints(Exception):
    """Formulas are in doubt until the network is lowered at further `points` as well."""

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        super().__init__(", ".join(map(str, points)))
        self.points = tuple(points)


def assemble_open(
    points: Sequence[LoweredPoint],
    dimensions: Sequence[OpenExtent],
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    *,
    threads: int = 1,
) -> PlannedProgram:
    """Compile a network for a CPU to a plan and a library for all extents of the `dimensions`.

    The last of `points` has the greatest ones.  `chosen` has the programs for the workloads of that point, which are
    written for any extents (see `is_open`); others have the default schedule.  Kernels are compiled on so many
    `threads`.

    Raises:
        BuildError: the network cannot be compiled, or cannot be planned, or is not the same for all extents; the text
            says where.
        MorePoints: it has to be lowered at further points.
        OrderError: when there is no linker for the target's architecture.
    """
    with _the_same(points), compiling(points[-1].lowered, MorePoints, Unlike), target, own_rules(target):
        return _assembled(points, dimensions, chosen, target, threads)


@contextmanager
def _the_same(points: Sequence[LoweredPoint]) -> Iterator[None]:
    """Says of a network that is not the same for all extents where that is, and what to do.

    Raises:
        BuildError: it is not.
    """
    try:
        yield
    except Unlike as unlike:
        raise BuildError(
            f"the network is not the same for all extents: {_other_kernels(points) or unlike}; leave out one of the "
            "ranges, or name some shapes in place of it"
        ) from unlike


def _other_kernels(points: Sequence[LoweredPoint]) -> str:
    """The names of the first kernels that are not called alike at all points, without their numbers."""
    calls = [[_NUMBERS.sub("", each) for each in called_functions(point.lowered).values()] for point in points]
    unlike = (dict.fromkeys(each or "none" for each in names) for names in itertools.zip_longest(*calls))
    return next((f"kernels {' or '.join(names)}" for names in unlike if len(names) > 1), "")


def check_open(points: Sequence[LoweredPoint], dimensions: Sequence[OpenExtent], target: tvm.target.Target) -> None:
    """Check that the network, with default schedules, is the same for all extents; nothing is compiled.

    Raises:
        BuildError: as for `assemble_open`.
        MorePoints: as for `assemble_open`.
    """
    with _the_same(points), compiling(points[-1].lowered, MorePoints, Unlike), target, own_rules(target):
        _general(points, dimensions, [{} for _ in points], target)


def _assembled(
    points: Sequence[LoweredPoint],
    dimensions: Sequence[OpenExtent],
    chosen: Mapping[str, tuple[Sketch, Candidate]],
    target: tvm.target.Target,
    threads: int,
) -> PlannedProgram:
    written = _programs(points, chosen, target)
    try:
        plan, general, greatest = _general(points, dimensions, written, target)
    except Unlike as unlike:
        if at_fault := _of_several_forms(points, written):
            raise BuildError(f"programs are not written for all extents: {unlike}", at_fault) from unlike
        raise
    kernels = tvm.transform.Sequential(default_schedules(target))(with_a_kernel(general))
    library = build_kernels(kernels, target, (), threads)
    empty = _may_be_empty(plan)

    def proof_of(name: str, ranges: Mapping[int, Interval]) -> Proof:
        kernel = library.kernels[name]
        found = kernel.proof
        if ranges and (found.unproven or found.results):
            found = prove(kernel.lowered, ranges)
        return found._replace(unproven=(*found.unproven, "an operand may have no elements")) if name in empty else found

    bounds = prove_plan(plan, proof_of, lambda _: None)
    calls = describe_calls(greatest.plan, greatest.kernels, points[-1].lowered, chosen)
    return PlannedProgram(plan, library.content, greatest.weights, calls, 0, bounds)


def _general(
    points: Sequence[LoweredPoint],
    dimensions: Sequence[OpenExtent],
    written: Sequence[Mapping[str, tvm.tirx.PrimFunc]],
    target: tvm.target.Target,
) -> tuple[ExecutionPlan, tvm.IRModule, Planned]:
    """The plan and the kernels for all extents, and what was planned for the greatest ones.

    `written` has for each point the functions of programs, by name.

    Raises:
        Unlike: the network is not the same for all extents.
        MorePoints: formulas are in doubt.
    """
    called, planned = [], []
    for point, functions in zip(points, written, strict=True):
        module = scheduled_with(point.lowered, functions)
        ready, weights = in_kernels(module, point.lowered.weights, target, {}, {}, schedules=False)
        called.append(ready)
        shaped = point.shaped
        planned.append(
            plan_network(ready, weights, (), inputs=shaped.inputs, outputs=shaped.outputs, checks=shaped.checks)
        )
    extents = [point.extents for point in points]
    whole = _whole_weights(planned)
    plan, more = _open_plan(planned, dimensions, extents, whole)
    operands = {
        (operation.kernel, position): plan.tensors[tensor].shape
        for operation in plan.operations
        if isinstance(operation, KernelCall)
        for position, tensor in enumerate(operation.tensors)
        if tensor in whole
    }
    plans = [each.plan for each in planned]
    kernels = _kernels(called, plans, plan)
    try:
        general, doubts = generalise(kernels, extents, operands)
    except Unlike:
        if not (unlike := _of_further_extents(kernels, operands)):
            raise
        plan, kernels = _with_inputs(plan, plans, kernels, unlike)
        general, doubts = generalise(kernels, extents, operands)
    least = _least(dimensions)
    if _empty_at(least, plan) and all(least.values()) and least not in extents:  # its shapes may not be those there
        more = (*more, least)
    if doubts or more:
        raise MorePoints([*doubts, *more])
    return plan, general, planned[-1]


def _of_further_extents(kernels: Sequence[tvm.IRModule], operands: Mapping[tuple[str, int], Sequence[int]]) -> set[str]:
    """The kernels whose numbers do not all follow from the extents of their operands."""
    found = set()
    for functions in zip(*(module.functions_items() for module in kernels), strict=True):
        name = str(functions[0][0].name_hint)
        own = {key: shape for key, shape in operands.items() if key[0] == name}
        try:
            generalise([tvm.IRModule({name: function}) for _, function in functions], [{}] * len(kernels), own)
        except Unlike:
            found.add(name)
    return found


def _with_inputs(
    plan: ExecutionPlan, plans: Sequence[ExecutionPlan], kernels: Sequence[tvm.IRModule], names: Collection[str]
) -> tuple[ExecutionPlan, list[tvm.IRModule]]:
    """The plan and the kernels of its points, where those of these `names` take the inputs that have open extents, too.

    They read nothing of these: they take them for their extents, which a kernel knows of its operands alone.  Rows of
    several batches in one axis do not tell how many there are of each, for example.
    """
    assert plan.open is not None  # it is an open plan
    inputs = dict.fromkeys(plan.input_tensors[each.input] for each in plan.open.dimensions)
    operations = [
        msgspec.structs.replace(each, tensors=(*each.tensors, *inputs))
        if isinstance(each, KernelCall) and each.kernel in names
        else each
        for each in plan.operations
    ]
    made = []
    for module, of_point in zip(kernels, plans, strict=True):
        tensors = [of_point.tensors[number] for number in inputs]
        further = [
            tvm.tirx.decl_buffer([index(extent) for extent in each.shape], each.dtype, f"extents_{at}")
            for at, each in enumerate(tensors)
        ]
        functions = {str(name.name_hint): function for name, function in module.functions_items()}
        for name in names:
            old = functions[name]
            functions[name] = tvm.tirx.PrimFunc([*old.params, *further], old.body, old.ret_type, old.attrs)
        made.append(tvm.IRModule(functions))
    return msgspec.structs.replace(plan, operations=tuple(operations)), made


def _least(dimensions: Iterable[OpenExtent]) -> dict[str, int]:
    return {each.name: each.steps(each.least) for each in dimensions}


def _empty_at(extents: Mapping[str, int], plan: ExecutionPlan) -> set[int]:
    """The tensors that have no elements at these extents."""
    assert plan.open is not None  # it is an open plan
    return {number for number, shape in plan.open.shapes.items() if any(each.value(extents) < 1 for each in shape)}


def _may_be_empty(plan: ExecutionPlan) -> set[str]:
    """The kernels that may have an operand without elements: proofs take for granted that none is."""
    assert plan.open is not None  # it is an open plan
    empty = _empty_at(_least(plan.open.dimensions), plan)
    return {each.kernel for each in plan.operations if isinstance(each, KernelCall) and empty & set(each.tensors)}


def _kernels(
    called: Sequence[tvm.IRModule], plans: Sequence[ExecutionPlan], general: ExecutionPlan
) -> list[tvm.IRModule]:
    """The kernels that are called at each point, under the names of those in the general plan and in their order."""
    modules: list[dict[str, tvm.tirx.PrimFunc]] = [{} for _ in called]
    known = [
        {
            str(each.attrs["global_symbol"]): each
            for _, each in module.functions_items()
            if "global_symbol" in each.attrs
        }
        for module in called
    ]
    for operation, *own in zip(general.operations, *(plan.operations for plan in plans), strict=True):
        if isinstance(operation, KernelCall):
            for functions, made, each in zip(known, modules, own, strict=True):
                function = functions[each.kernel].with_attr("global_symbol", operation.kernel)
                made[operation.kernel] = function.without_attr(JOINS).without_attr(SLICES)
    return [tvm.IRModule(each) for each in modules]


def _programs(
    points: Sequence[LoweredPoint], chosen: Mapping[str, tuple[Sketch, Candidate]], target: tvm.target.Target
) -> list[dict[str, tvm.tirx.PrimFunc]]:
    """For each point the functions that the chosen programs write, by name."""
    made: list[dict[str, tvm.tirx.PrimFunc]] = [{} for _ in points]
    for names, digests, modules in _kernels_alike(points):
        sketch, candidate = chosen.get(digests[-1], (None, None))
        if sketch is None or candidate is None or candidate.sketch == UNTUNED:
            continue
        if len(set(digests)) == 1:
            written = [apply_candidate(modules[-1], sketch, candidate, target)] * len(modules)
        elif not (written := _open_ended(sketch, modules, candidate)):
            what = f"program {program_of(sketch) or 'of a sketch'} is not written for all extents"
            raise BuildError(f"the network cannot be compiled: {what}", {digests[-1]})
        for of_point, name, module in zip(made, names, written, strict=True):
            of_point[name] = module["main"]
    return made


def modules_at(points: Sequence[LoweredPoint]) -> dict[str, list[list[tvm.IRModule]]]:
    """By workload at the greatest extents, its modules at all points where they are not the same.

    There are several lists where other workloads have become one at the greatest extents.

    Raises:
        BuildError: the network is not the same at all points.
    """
    found: dict[str, list[list[tvm.IRModule]]] = {}
    with _the_same(points):
        for _, digests, modules in _kernels_alike(points):
            if len(set(digests)) > 1:
                found.setdefault(digests[-1], []).append(modules)
    return found


def is_open(sketch: Sketch, candidate: Candidate, modules: Sequence[Sequence[tvm.IRModule]]) -> bool:
    """Whether the program of a candidate is written for any extents between those of a workload's modules."""
    return all(_open_ended(sketch, [each[0], each[-1]], candidate) for each in modules)


def _of_several_forms(points: Sequence[LoweredPoint], written: Sequence[Mapping[str, tvm.tirx.PrimFunc]]) -> set[str]:
    """The workloads (digests) whose programs, as written at each point, do not make one function."""
    found = set()
    for names, digests, _ in _kernels_alike(points):
        functions = [each.get(name) for each, name in zip(written, names, strict=True)]
        try:
            if None not in functions:
                generalise([tvm.IRModule({"main": each}) for each in functions], [{}] * len(points))
        except Unlike:
            found.add(digests[-1])
    return found


def _kernels_alike(
    points: Sequence[LoweredPoint],
) -> Iterator[tuple[tuple[str, ...], list[str], list[tvm.IRModule]]]:
    """For each kernel of the network its functions, the digests of its workloads and these, one at each point."""
    workloads = [{each.digest: each.module for each in point.lowered.workloads} for point in points]
    calls = [called_functions(point.lowered) for point in points]
    if any(list(each) != list(calls[0]) for each in calls):
        raise Unlike(f"{' or '.join(map(str, sorted({len(each) for each in calls})))} calls of kernels")
    for names in dict.fromkeys(zip(*(each.values() for each in calls), strict=True)):
        digests = [point.lowered.functions[name] for point, name in zip(points, names, strict=True)]
        yield names, digests, [known[digest] for known, digest in zip(workloads, digests, strict=True)]


def _open_ended(sketch: Sketch, modules: Sequence[tvm.IRModule], candidate: Candidate) -> list[tvm.IRModule]:
    """What the program writes at each point; empty where there is none, or it is written for known extents alone."""
    if not (name := program_of(sketch)):
        return []
    program, variant = program_named(name)
    try:
        return program.open_ended(modules, variant, candidate.decisions)
    except BuildError:
        return []


def _open_plan(
    planned: Sequence[Planned],
    dimensions: Sequence[OpenExtent],
    points: Sequence[Mapping[str, int]],
    whole: Collection[int],
) -> tuple[ExecutionPlan, tuple[Mapping[str, int], ...]]:
    """The plan of the greatest extents with the formulas of its numbers, and points at which some are in doubt.

    Tensors that are `whole` have the shape of the greatest extents at all points.
    """
    fits = Points(points)

    def formulas(*numbers: Sequence[int]) -> tuple[Formula, ...]:
        """A formula for each number of the last of these lists; empty where all are the same at all points."""
        if len({len(each) for each in numbers}) > 1:
            raise Unlike("tensors of another rank")
        if len(set(map(tuple, numbers))) == 1:
            return ()
        return tuple(fits.formula_of(values, "an extent") for values in zip(*numbers, strict=True))

    plans = [each.plan for each in planned]
    greatest = plans[-1]
    _compare(plans)
    operations = _operations(plans)
    shapes = {
        number: found
        for number, tensors in enumerate(zip(*(plan.tensors for plan in plans), strict=True))
        if number not in whole and (found := formulas(*(tensor.shape for tensor in tensors)))
    }
    offsets = {
        number: Formula((*Formula.of(greatest.tensors[number].offset - shifts[-1]).products, *found.products))
        for number, shifts in enumerate(zip(*(each.shifts for each in planned), strict=True))
        for found in formulas(*((shift,) for shift in shifts))
    }
    sizes = {
        number: found
        for number, checks in enumerate(zip(*(plan.checks for plan in plans), strict=True))
        if (found := formulas(*(check.sizes for check in checks)))
    }
    opened = OpenExtents(tuple(dimensions), shapes, offsets, sizes)
    plan = msgspec.structs.replace(
        greatest,
        operations=operations,
        open=opened,
        outputs=_ranged(greatest.outputs, greatest.output_tensors, opened),
    )
    return plan, fits.doubts()


def _operations(plans: Sequence[ExecutionPlan]) -> tuple[Operation, ...]:
    """The operations at the greatest extents, where kernels that differ at other points have names of their own."""
    names: dict[tuple[str, ...], str] = {}
    taken = {each.kernel for each in plans[-1].operations if isinstance(each, KernelCall)}
    operations: list[Operation] = []
    for each in zip(*(plan.operations for plan in plans), strict=True):
        made = each[-1]
        if isinstance(made, KernelCall):
            own = tuple(call.kernel for call in each if isinstance(call, KernelCall))
            if own not in names:
                again = (f"{made.kernel}_{number}" for number in itertools.count(2))
                used = made.kernel in names.values()
                names[own] = next(name for name in again if name not in taken) if used else made.kernel
                taken.add(names[own])
            made = msgspec.structs.replace(made, kernel=names[own])
        operations.append(made)
    return tuple(operations)


def _compare(plans: Sequence[ExecutionPlan]) -> None:
    """Check that plans differ in numbers alone, and that those for the greatest extents are the greatest."""

    def form(plan: ExecutionPlan) -> object:
        operations = [
            msgspec.structs.replace(each, kernel="", title="", threads=0) if isinstance(each, KernelCall) else each
            for each in plan.operations
        ]
        tensors = [(each.place, each.dtype) for each in plan.tensors]
        return operations, tensors, plan.input_tensors, plan.output_tensors

    if any(form(plan) != form(plans[0]) for plan in plans):
        raise Unlike("plans of other operations")
    for plan in plans:
        for tensor, greatest in zip(plan.tensors, plans[-1].tensors, strict=True):
            if tensor.nbytes > greatest.nbytes:  # it has no room in the arena of the greatest extents
                raise Unlike(f"a tensor of shape {tensor.shape} that is smaller for the greatest extents")


def _whole_weights(planned: Sequence[Planned]) -> frozenset[int]:
    """Check that weights are those at the greatest extents, or parts of these; returns inner parts.

    A part that lies at the beginning, such as the first rows of a table, is read with its own shape.  Of others, such
    as a block of a matrix, kernels read the whole.
    """
    held = [_weights_of(each) for each in planned]
    greatest = held[-1]
    inner = set()
    for number, array in greatest.items():
        for each in held:
            if number not in each or each[number].dtype != array.dtype:
                raise Unlike("other weights")
            if array.tobytes().startswith(each[number].tobytes()):
                continue
            if each[number].ndim != array.ndim or not np.array_equal(
                array[tuple(map(slice, each[number].shape))], each[number]
            ):
                raise Unlike(f"a weight of shape {each[number].shape} has other values")
            inner.add(number)
    copied = {each.source for each in planned[-1].plan.operations if isinstance(each, Copy)} | {
        each.condition for each in planned[-1].plan.operations if isinstance(each, Branch)
    }
    if inner & copied:
        raise Unlike("a part of a weight is copied")
    return frozenset(inner)


def _weights_of(planned: Planned) -> dict[int, npt.NDArray[Any]]:
    """The tensors of a plan that are weights, by their numbers."""
    blocks = [block_of(weight) for weight in planned.weights]
    offsets = place_in_a_row([each.data.nbytes for each in blocks]).offsets
    at = {
        offset: weight.numpy()
        for offset, weight, block in zip(offsets, planned.weights, blocks, strict=True)
        if block.data.nbytes
    }
    return {
        number: at[tensor.offset].reshape(tensor.shape)
        for number, tensor in enumerate(planned.plan.tensors)
        if tensor.place == "weights" and tensor.nbytes
    }


def _ranged(outputs: Sequence[Tensor], tensors: Sequence[int], opened: OpenExtents) -> tuple[Tensor, ...]:
    """The outputs with the ranges of their extents."""
    least = _least(opened.dimensions)
    return tuple(
        msgspec.structs.replace(
            tensor,
            ranges=tuple(
                (formula.value(least), extent, 0)
                for formula, extent in zip(opened.shapes.get(place, ()), tensor.shape, strict=False)
            ),
        )
        for tensor, place in zip(outputs, tensors, strict=False)  # results after the outputs are for checks
    )
