"""Reads the contraction of a workload: from what lowering wrote on its block, else from the loops.

A product of matrices, or a convolution of any kernel, of floats, of bytes, or with blockwise quantised weights.  Of the
convolutions in groups, depthwise ones are read, and those whose data and result have an axis of groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, ScheduleError

from kintune.compiler.kernels.blocks import Loops, constant_shape, loads_in, nests_of
from kintune.compiler.kernels.contraction import (
    BATCHED,
    DENSE,
    DEPTHWISE,
    GROUPED,
    OF_BLOCKWISE,
    OF_BYTES,
    OF_FLOATS,
    Contraction,
    Operator,
    Reach,
    described,
)
from kintune.compiler.kernels.cutting import cut
from kintune.compiler.kernels.epilogue import Epilogue, epilogue_of
from kintune.compiler.kernels.loops import INDEX, replaced
from kintune.compiler.kernels.padding_block import Padding, padding_of
from kintune.compiler.space.weights import weight_positions
from kintune.compiler.tir import nodes_in, plain_schedule
from kintune.errors import BuildError
from kintune.models.blockwise import ANNOTATION, BITS, PACKED, REAL, Blockwise, parse_blockwise
from kintune.models.blockwise_kernel import weight_of

__all__ = ["Joined", "find", "joined", "linear", "require"]

_IMAGE = 3  # axes of images, rows and columns, before those of channels

_WORKLOADS = 32  # whose contractions are kept, since several programs ask for them again and again

_TYPES = {("float32", "float32", "float32"): OF_FLOATS, ("uint8", "int8", "int32"): OF_BYTES}
"""How operands are stored, by the types of data, weights and sums."""

_WORDS = {
    OF_FLOATS: "sums of products with constant weights",
    OF_BYTES: "products of bytes",
    OF_BLOCKWISE: "products with blockwise quantised weights",
}


class Joined(NamedTuple):
    """The workload with what follows its sum in one block, the sum, and that block; None where nothing follows.

    The module of a sum with a prologue lacks the blocks of that, and has the data as its last parameter.
    """

    module: tvm.IRModule
    found: Contraction
    epilogue: Epilogue | None

    @property
    def data_position(self) -> int:
        """The position of the data among the parameters; -1 where it is none of them."""
        return -1 if self.found.prologue is not None else _position(self.module["main"], self.found.data)

    @property
    def result_position(self) -> int:
        """The position of what is stored among the parameters; -1 where it is none of them."""
        return _position(self.module["main"], self.found.result if self.epilogue is None else self.epilogue.target)

    @property
    def keepable(self) -> frozenset[int]:
        """The positions of the parameters of fp32 that may be of bf16: data, what is stored, and what is read with the
        sums.
        """
        read = [] if self.epilogue is None else self.epilogue.operands
        params = self.module["main"].params
        found = {self.data_position, *(_position(self.module["main"], each) for each in read)} - {self.found.position}
        if self.epilogue is None or self.epilogue.is_vectorised:
            found.add(self.result_position)
        return frozenset(at for at in found if at is not None and at >= 0 and str(params[at].dtype) == "float32")


def joined(
    module: tvm.IRModule, types: str = OF_FLOATS, kinds: Sequence[str] = (DENSE,), *, prologues: bool = False
) -> Joined | None:
    """The contraction of a workload (function `main`) that has nothing else than what follows it, put in one block.

    With `prologues`, other blocks may compute its data row by row.  Returns None for a workload without a contraction
    of these types and kinds, or where one block cannot hold what follows.
    """
    return _joined(module, module["main"], types, tuple(kinds), prologues)


@lru_cache(_WORKLOADS)
def _joined(
    module: tvm.IRModule, function: tvm.tirx.PrimFunc, types: str, kinds: tuple[str, ...], prologues: bool
) -> Joined | None:
    parts = cut(function)
    if parts is None:
        return _alone(module, function, types, kinds)
    rest = tvm.IRModule({"main": parts.rest}, attrs=module.attrs)
    found = _alone(rest, parts.rest, types, kinds) if prologues else None
    return None if found is None else found._replace(found=found.found._replace(prologue=parts.prologue))


def _alone(module: tvm.IRModule, function: tvm.tirx.PrimFunc, types: str, kinds: tuple[str, ...]) -> Joined | None:
    found = find(module, types, kinds)
    if found is not None and len(found.nests) == len(found.replaced):
        return Joined(module, found, None)
    sums = [block for block in nodes_in(function.body, SBlock) if block.init is not None]
    if len(sums) != 1 or types not in {operands.types for operands in _operands(Loops(None, sums[0]))}:
        return None
    schedule = plain_schedule(module)
    try:
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        core = schedule.get_sblock(str(sums[0].name_hint))
        kept = {schedule.get(block).name_hint for block in (core, *schedule.get_producers(core))}
        for block in blocks:
            if schedule.get(block).name_hint not in kept and schedule.get_consumers(block):
                schedule.compute_inline(block)
    except ScheduleError:
        return None
    found = find(schedule.mod, types, kinds)
    if found is None or len(found.nests) != len(found.replaced) + 1:
        return None
    epilogue = epilogue_of(found.nests, found.name)
    return None if epilogue is None else Joined(schedule.mod, found, epilogue)


def require(
    module: tvm.IRModule, types: str = OF_FLOATS, kinds: Sequence[str] = (DENSE, BATCHED), *, prologues: bool = False
) -> Joined:
    """What `joined` finds.

    Raises:
        BuildError: the workload has no contraction of these types and kinds.
    """
    found = joined(module, types, kinds, prologues=prologues)
    if found is None:
        raise BuildError(f"there are no {_WORDS[types]}")
    return found


def find(module: tvm.IRModule, types: str = OF_FLOATS, kinds: Sequence[str] = (DENSE,)) -> Contraction | None:
    """The contraction of a workload (function `main`), where it has exactly one sum, which is of these types and kinds.

    Other blocks may do anything else.  It is None where indices are of another type than networks have.
    """
    function = module["main"]
    nests = nests_of(function)
    sums = [at for at, nest in enumerate(nests or ()) if nest.block.init is not None]
    if nests is None or len(sums) != 1 or str(nests[sums[0]].block.iter_vars[0].var.ty.dtype) != INDEX:
        return None
    for operands in _operands(nests[sums[0]]):
        found = _read(function, nests, sums[0], operands) if operands.types == types else None
        if found is not None and found.kind in kinds:
            return found
    return None


class _Operands(NamedTuple):
    """What a block multiplies: the load of the data, and the weight as an expression of loads of `sources`: the
    weights, and if they are blockwise quantised their scales, and zero points if there are any.
    """

    types: str
    data: Any
    weight: Any
    sources: tuple[Any, ...]
    blockwise: Blockwise | None = None

    @property
    def places(self) -> list[Any]:
        """The indices of the weights."""
        return list(loads_in(self.weight)[0].indices)


def _operands(nest: Loops) -> list[_Operands]:
    """The operands, in both orders, if the block sums products from zero, one result for each of its variables."""
    block, store = nest.block, nest.block.body
    if not isinstance(store, tvm.tirx.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return []
    kept = nest.variables(reducing=False)
    if len(kept) < 2 or not _all_same(store.indices, kept) or not _starts_at_zero(block.init, store):
        return []
    if constant_shape(store.buffer) != tuple(_extent(nest, variable) for variable in kept):
        return []
    total, product = store.value.a, store.value.b
    if not isinstance(total, tvm.ir.TensorLoad):
        total, product = product, total
    own = isinstance(total, tvm.ir.TensorLoad) and total.source.same_as(store.buffer)
    if not own or not _all_same(total.indices, kept) or not isinstance(product, tvm.tirx.Mul):
        return []
    pairs = (product.a, product.b), (product.b, product.a)
    return [found for pair in pairs if (found := _stored(nest, *pair)) is not None]


def _starts_at_zero(init: Any, store: Any) -> bool:
    return (
        isinstance(init, tvm.tirx.BufferStore)
        and init.buffer.same_as(store.buffer)
        and _all_same(init.indices, list(store.indices))
        and isinstance(init.value, tvm.tirx.FloatImm | tvm.tirx.IntImm)
        and float(init.value.value) == 0.0
    )


def _stored(nest: Loops, data: Any, weight: Any) -> _Operands | None:
    """The operands, if they are loads, or casts of loads, of known types; or of floats and blockwise quantised."""
    sums = str(nest.block.body.buffer.dtype)
    loads = [each.value if isinstance(each, tvm.tirx.Cast) else each for each in (data, weight)]
    if all(isinstance(each, tvm.ir.TensorLoad) for each in loads):
        types = _TYPES.get((str(loads[0].source.dtype), str(loads[1].source.dtype), sums))
        return None if types is None else _Operands(types, loads[0], loads[1], (loads[1].source,))
    centred, scale = (weight.a, weight.b) if isinstance(weight, tvm.tirx.Mul) else (None, None)
    if not isinstance(data, tvm.ir.TensorLoad) or not isinstance(centred, tvm.tirx.Sub) or sums != "float32":
        return None
    sources = [[load.source for load in loads_in(part)] for part in (centred.a, scale, centred.b)]
    if [len(each) for each in sources[:2]] != [1, 1] or len(sources[2]) > 1:
        return None
    flat = tuple(source for each in sources for source in each)
    text = (nest.block.annotations or {}).get(ANNOTATION)
    blockwise = parse_blockwise(str(text)) if text else _quantisation(nest, data.indices[-1], weight, flat)
    if blockwise is None or bool(sources[2]) != bool(blockwise.zeros):
        return None
    return _Operands(OF_BLOCKWISE, data, weight, flat, blockwise)


def _quantisation(nest: Loops, k: Any, weight: Any, sources: Sequence[Any]) -> Blockwise | None:
    """The quantisation with which lowering would write this weight of input k; None where there is none."""
    integers, scales, *zeros = sources
    rows, blocks = int(integers.shape[0]), int(scales.shape[0])
    column, inputs, simplify = nest.variables(reducing=False)[-1], _extent(nest, k), tvm.sym.Analyzer().simplify
    kind = "" if not zeros else PACKED if str(zeros[0].dtype) == "uint8" else REAL
    for bits in BITS:
        found = Blockwise(bits, max(1, rows * 8 // (bits * blocks)), inputs, kind)
        written = simplify(weight_of(found, integers, scales, zeros, k, column))
        if tvm_ffi.structural_equal(written, simplify(weight)):
            return found
    return None


def _read(function: Any, nests: list[Loops], at: int, operands: _Operands) -> Contraction | None:
    """The contraction of a block, if all weights are parameters that nothing else reads."""
    nest, free = nests[at], weight_positions(function)
    places = [_position(function, source) for source in operands.sources]
    if -1 in places or (operands.types != OF_BYTES and not free.issuperset(places)):
        return None
    if any(sum(len(loads_in(each.block.body, source)) for each in nests) != 1 for source in operands.sources):
        return None
    operator = described(nest.block)
    writers = tuple(i for i, each in enumerate(nests) if each.block.body.buffer.same_as(operands.data.source))
    padding = _padding(function, nests, at, operands, writers)
    if padding is None:
        return None
    access = _access(nest, operands, padding) if operator is None else _known(nest, operands, padding, operator)
    if access is None:
        return None
    kind, images, rows, columns, variables = access
    others = [v for v in nest.variables(reducing=True) if not _is_one_of(v, variables[2:3])]
    zero = {v: tvm.tirx.const(0, str(v.ty.dtype)) for v in others if _extent(nest, v) == 1}
    weights, scales, zeros = (*operands.sources, None, None)[:3]
    return Contraction(
        nests=tuple(nests),
        replaced=(*writers, at),
        kind=kind,
        types=operands.types,
        data=padding.data,
        weights=weights,
        result=nest.block.body.buffer,
        parameters=tuple(sorted(free.intersection(places))),
        images=images,
        rows=rows,
        columns=columns,
        weight_at=replaced(operands.weight, zero),
        variables=variables,
        border=padding.value,
        blockwise=operands.blockwise,
        scales=scales,
        zeros=zeros,
    )


def _padding(function: Any, nests: list[Loops], at: int, operands: _Operands, writers: Sequence[int]) -> Padding | None:
    """What stands around the data; None where the data is no parameter, nor a parameter with a border around it."""
    data = operands.data.source
    if _position(function, data) != -1:
        nothing = (0,) * len(data.shape)
        return None if writers or constant_shape(data) is None else Padding(data, nothing, nothing, None)
    if len(writers) != 1 or [i for i, nest in enumerate(nests) if loads_in(nest.block.body, data)] != [at]:
        return None
    found = padding_of(nests[writers[0]])
    if found is None or _position(function, found.data) == -1:
        return None
    if not found.is_any:
        return found._replace(value=None)
    if operands.types == OF_BYTES and isinstance(found.value, tvm.ir.TensorLoad):
        around = found.value.source
        return found._replace(value=around[0]) if constant_shape(around) == (1,) else None
    is_number = isinstance(found.value, tvm.tirx.IntImm if operands.types == OF_BYTES else tvm.tirx.FloatImm)
    return found if is_number and (operands.types == OF_BYTES or float(found.value.value) == 0.0) else None


_Access = tuple[str, int, Reach, Reach, tuple[Any, ...]]
"""The kind, images, rows, columns, and variables (see `Contraction`)."""


def _access(nest: Loops, operands: _Operands, padding: Padding) -> _Access | None:
    """What the loops read, if indices are as they should be."""
    kept, reduced = nest.variables(reducing=False), nest.variables(reducing=True)
    indices, filters = operands.data.indices, kept[-1]
    shape = constant_shape(operands.data.source) or ()
    sums = _is_one_of(indices[-1], reduced)
    channel = indices[-1] if sums else None
    if shape[-1] != _extent(nest, channel if sums else filters) or not (sums or _is_alone(indices[-1], filters, nest)):
        return None
    own: list[Any] = []  # what weights have beside channels, places and filters
    kind, inner, group = DENSE if sums else DEPTHWISE, 1, None
    if operands.blockwise is None:
        own = [variable for variable in kept[:-1] if _is_one_of(variable, operands.places)]
        if own and sums and _all_same(own, kept[:-2]) and _all_same(indices[:-2], own):
            kind = BATCHED
        elif own and sums and len(own) == 1 and own[0].same_as(kept[-2]) and own[0].same_as(indices[-2]):
            kind, inner, group = GROUPED, 2, own[0]
            if shape[-2] != _extent(nest, group):
                return None
        elif own:
            return None
        if not _reads_all(nest, operands, [*reduced, *own, filters]):
            return None
    rest = channel, filters, group
    places = [variable for variable in reduced if not _is_one_of(variable, [channel])]
    rows = _matrix(nest, operands.data, kept[:-1], places) if kind in (DENSE, BATCHED) and not padding.is_any else None
    if rows is not None:
        return kind, 1, Reach(), rows, (None, None, *rest)
    image = None if kind == BATCHED else _image(nest, operands.data, padding, places, inner)
    return None if image is None else (kind, *image[:3], (*image[3], *rest))


def _known(nest: Loops, operands: _Operands, padding: Padding, operator: Operator) -> _Access | None:
    """What the loops read of which lowering knows the operator; a product with other axes by now is read anew."""
    indices, kept = operands.places, nest.variables(reducing=False)
    size, results = (constant_shape(each) or () for each in (padding.data, nest.block.body.buffer))
    if not operator.convolves and size[:-1] != results[:-1]:
        return _access(nest, operands, padding)
    kernel = tuple(map(int, operands.sources[0].shape))[:2] if operator.convolves else (1, 1)
    kind = BATCHED if operator.batched else DENSE
    if operator.groups:
        kind = GROUPED if len(indices) > _IMAGE + 1 else DEPTHWISE
    rest = None if kind == DEPTHWISE else operands.data.indices[-1], kept[-1], kept[-2] if kind == GROUPED else None
    if not operator.groups and kernel == (1, 1) and not padding.is_any and size[:-1] == results[:-1]:
        number = math.prod(size[:-1])
        return kind, 1, Reach(), Reach(number, number), (None, None, *rest)
    rows, columns = (
        Reach(
            size[axis + 1],
            *(results[axis + 1], kernel[axis], operator.strides[axis]),
            operator.dilations[axis] if kernel[axis] > 1 else 1,
            *(padding.before[axis + 1], padding.after[axis + 1]),
        )
        for axis in (0, 1)
    )
    return kind, size[0], rows, columns, (*indices[:2], *rest)


def _reads_all(nest: Loops, operands: _Operands, variables: Sequence[Any]) -> bool:
    """Whether all weights are read, each once, with the variables themselves as indices.

    Variables of one value need not be among the indices, but for the last one.
    """
    shape = constant_shape(operands.sources[0])
    if shape is None:
        return False
    found: list[Any] = []
    for index, extent in zip(operands.places, shape, strict=True):
        if extent == 1 and isinstance(index, tvm.tirx.IntImm):
            continue
        if not _is_one_of(index, variables) or _is_one_of(index, found) or _extent(nest, index) != extent:
            return False
        found.append(index)
    missing = [variable for variable in variables if not _is_one_of(variable, found)]
    return all(_extent(nest, variable) == 1 for variable in missing) and _is_one_of(variables[-1], found)


def _matrix(nest: Loops, data: Any, kept: Sequence[Any], places: Sequence[Any]) -> Reach | None:
    """The rows of a product of matrices; None where the data is read in another way than row by row."""
    shape = constant_shape(data.source) or ()
    if any(_extent(nest, variable) > 1 for variable in places):
        return None
    pending = [variable for variable in kept if _extent(nest, variable) > 1]
    for index, extent in zip(data.indices[:-1], shape[:-1], strict=True):
        if extent == 1:
            continue
        if not pending or not _is_alone(index, pending[0], nest) or _extent(nest, pending[0]) != extent:
            return None
        pending.pop(0)
    rows = math.prod(shape[:-1])
    return None if pending else Reach(rows, rows)


def _is_alone(index: Any, variable: Any, nest: Loops) -> bool:
    """Whether an index is a variable, to which only variables of extent 1 are added."""
    found = _multiples(index, nest)
    others = [(each, by) for each, by in found or () if by and _extent(nest, each) > 1]
    return len(others) == 1 and others[0][0].same_as(variable) and others[0][1] == 1


def _image(
    nest: Loops, data: Any, padding: Padding, places: Sequence[Any], inner: int
) -> tuple[int, Reach, Reach, tuple[Any, Any]] | None:
    """The images, what is read along their two axes, and the variables of the kernel's places.

    Data and result have `inner` further axes after those of images, rows and columns.
    """
    shape, kept = constant_shape(padding.data) or (), nest.variables(reducing=False)
    if len(shape) != _IMAGE + inner or len(kept) != _IMAGE + inner:
        return None
    if any(padding.before[axis] or padding.after[axis] for axis in range(len(shape)) if axis not in (1, 2)):
        return None
    n, first = kept[0], data.indices[0]
    single = isinstance(first, tvm.tirx.IntImm) and int(first) == 0 and shape[0] == 1
    if not (single or first.same_as(n)) or _extent(nest, n) != shape[0]:
        return None
    around = [Reach(shape[axis], before=padding.before[axis], after=padding.after[axis]) for axis in (1, 2)]
    rows, columns = (_reach(nest, data.indices[axis], kept[axis], places, around[axis - 1]) for axis in (1, 2))
    if rows is None or columns is None:
        return None
    used = [variable for _, variable in (rows, columns) if variable is not None]
    unused = [each for each in places if not _is_one_of(each, used)]
    if any(_extent(nest, each) > 1 for each in unused) or (len(used) > 1 and used[0].same_as(used[1])):
        return None
    return shape[0], rows[0], columns[0], (rows[1], columns[1])


def _reach(nest: Loops, index: Any, position: Any, places: Sequence[Any], around: Reach) -> tuple[Reach, Any] | None:
    """What an index of the data reads along its axis, and the variable of the kernel's places in it, if any.

    `around` has the size of the axis, and what stands around it.
    """
    multiples = _multiples(index, nest)
    if multiples is None:
        return None
    stride, dilation, place = 1, 1, None
    for variable, by in multiples:
        if variable.same_as(position):
            stride = by
        elif by and _is_one_of(variable, places) and place is None:
            dilation, place = by, variable
        elif by:
            return None
    kernel = 1 if place is None else _extent(nest, place)
    results = _extent(nest, position)
    if stride < 1 or dilation < 1 or (results - 1) * stride + (kernel - 1) * dilation >= around.padded:
        return None
    dilation = dilation if kernel > 1 else 1
    return around._replace(results=results, kernel=kernel, stride=stride, dilation=dilation), place


def linear(index: Any, variables: Sequence[Any]) -> tuple[int, list[int]] | None:
    """The index as a constant and a multiple of each variable; None where it is no such sum."""
    found = list(tvm.sym.detect_linear_equation(tvm.sym.Analyzer().simplify(index), list(variables)))
    if not found or not all(isinstance(each, tvm.tirx.IntImm) for each in found):
        return None
    *multiples, constant = map(int, found)
    return constant, multiples


def _multiples(index: Any, nest: Loops) -> list[tuple[Any, int]] | None:
    """The variables of a block, each with the multiple of it in an index; None where this is no sum of multiples."""
    variables = [each.var for each in nest.block.iter_vars]
    found = linear(index, variables)
    return None if found is None or found[0] else list(zip(variables, found[1], strict=True))


def _extent(nest: Loops, variable: Any) -> int:
    return next(int(each.dom.extent) for each in nest.block.iter_vars if each.var.same_as(variable))


def _is_one_of(found: Any, variables: Sequence[Any]) -> bool:
    return any(variable is not None and variable.same_as(found) for variable in variables)


def _all_same(found: Any, wanted: Sequence[Any]) -> bool:
    return len(found) == len(wanted) and all(a.same_as(b) for a, b in zip(found, wanted, strict=True))


def _position(function: Any, buffer: Any) -> int:
    """The position of a buffer among the parameters; -1 where it is none of them."""
    return next((at for at, parameter in enumerate(function.params) if parameter.same_as(buffer)), -1)
