"""Recognises a sum of products with constant weights: a product of matrices, or a convolution of any kernel.

Of the convolutions in groups, it recognises depthwise ones, and those whose data and result have an axis of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.programs.blocks import Nest, constant_shape, loads_in, nests_of
from kintune.compiler.programs.loops import replaced
from kintune.compiler.programs.zero_padding import zero_padding
from kintune.compiler.space.weights import weight_positions

__all__ = ["DENSE", "DEPTHWISE", "GROUPED", "Reach", "WeightedSum", "find_weighted_sum", "linear"]

DENSE, DEPTHWISE, GROUPED = "dense", "depthwise", "grouped"
"""Kinds of sums: each filter reads all channels, the one of its number, or those of its group."""

_TYPE = "float32"
_IMAGE = 3  # axes of images, rows and columns, before those of channels


class Reach(NamedTuple):
    """What a sum reads along one axis of an image: position x reads x * stride + i * dilation - before for i < kernel.

    `size` is the extent of the image, outside of which zeros are read, and `results` the number of positions.
    """

    size: int = 1
    results: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether position x reads x alone, and there is a position for each x of the image."""
        return self._replace(size=1, results=1) == Reach() and self.size == self.results


_Image = tuple[int, Reach, Reach, tuple[Any, Any]]
"""The images, what is read along their two axes, and the variables of the kernel's places."""


class WeightedSum(NamedTuple):
    """The sums over channels c and the kernel's places (i, j), in fp32, of data times a constant weight for a filter f.

    `result` has the filters in its last axis.  The data is an array of [images, rows.size, columns.size, channels].  A
    product of matrices is one image of one row, whose columns are all rows of the matrix.

    `nests` are all blocks of the function; `replaced` are the positions among them of the sum and of the block that
    wrote zeros around its data, if any.  `position` is the weights' among the function's parameters.

    In a `DEPTHWISE` sum, filter f reads channel f alone; `channels` are then those of the data all the same.  In a
    `GROUPED` one, data and result have an axis of groups before that of channels or filters, of which a group has so
    many.
    """

    nests: tuple[Nest, ...]
    replaced: tuple[int, ...]
    data: Any
    weights: Any
    result: Any
    position: int
    images: int
    rows: Reach
    columns: Reach
    channels: int
    load: Any
    variables: tuple[Any, Any, Any, Any, Any]
    kind: str = DENSE

    @property
    def groups(self) -> int:
        """The number of groups in a sum that has an axis of them; 1 in others."""
        return int(self.result.shape[-2]) if self.kind == GROUPED else 1

    @property
    def is_direct(self) -> bool:
        """Whether each position reads all channels of one place of the data, and nothing else."""
        return all(
            reach.kernel == 1 and not reach.before and (reach.results - 1) * reach.stride < reach.size
            for reach in (self.rows, self.columns)
        )

    @property
    def is_matrix(self) -> bool:
        """Whether all rows of the data are read in their order; they may be along other axes than the result's."""
        return self.rows == Reach() and self.columns.is_plain

    @property
    def filters(self) -> int:
        """The number of filters, which are columns of the matrix of weights."""
        return int(self.result.shape[-1])

    @property
    def positions(self) -> int:
        """The number of places at which all filters are computed."""
        return math.prod(self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the axes of the result but the last."""
        return tuple(int(extent) for extent in self.result.shape)[:-1]

    @property
    def flops(self) -> float:
        """The arithmetic of the sum."""
        summed = self.rows.kernel * self.columns.kernel * (1 if self.kind == DEPTHWISE else self.channels)
        return 2.0 * self.positions * self.filters * summed

    @property
    def name(self) -> str:
        """The name of its block."""
        return str(self.nests[max(self.replaced)].block.name_hint)

    @property
    def index_type(self) -> str:
        """The type of its indices."""
        return str(self.nests[max(self.replaced)].block.iter_vars[0].var.ty.dtype)

    def weight(self, i: Any, j: Any, c: Any, f: Any, group: Any = None) -> Any:
        """The weight of a place of the kernel, a channel and a filter of a group; what the kind lacks is ignored."""
        pairs = zip(self.variables, (i, j, c, f, group), strict=True)
        return replaced(self.load, {variable: value for variable, value in pairs if variable is not None})


def find_weighted_sum(module: tvm.IRModule, kind: str = DENSE) -> WeightedSum | None:
    """The sum of a workload (function `main`), where it has exactly one, which is of this kind."""
    function = module["main"]
    nests = nests_of(function)
    if nests is None:
        return None
    found = [at for at, nest in enumerate(nests) if nest.block.init is not None]
    matched = [match for at in found if (match := _match(function, nests, at, kind)) is not None]
    return matched[0] if len(matched) == len(found) == 1 else None


def _match(function: Any, nests: list[Nest], at: int, kind: str) -> WeightedSum | None:
    nest = nests[at]
    loads = _factors(nest)
    if loads is None:
        return None
    parameters = weight_positions(function)
    for data, load in (loads, loads[::-1]):
        position = next((i for i in parameters if function.params[i].same_as(load.source)), None)
        if position is None or sum(len(loads_in(each.block.body, load.source)) for each in nests) != 1:
            continue
        found = _READERS[kind](nest, data, load)
        if found is not None:
            here = found._replace(nests=tuple(nests), replaced=(at,), position=position)
            return _with_zeros(function, here, at)
    return None


def _factors(nest: Nest) -> tuple[Any, Any] | None:
    """The loads of the two factors, if the block sums products from zero, one result for each of its variables."""
    block, store = nest.block, nest.block.body
    if not isinstance(store, tvm.tirx.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return None
    kept = nest.variables(reducing=False)
    if len(kept) < 2 or not _all_same(store.indices, kept) or not _sums_from_zero(block.init, store):
        return None
    if constant_shape(store.buffer) != tuple(_extent(nest, variable) for variable in kept):
        return None
    total, product = store.value.a, store.value.b
    if not isinstance(total, tvm.ir.TensorLoad):
        total, product = product, total
    own = isinstance(total, tvm.ir.TensorLoad) and total.source.same_as(store.buffer)
    if not own or not _all_same(total.indices, kept) or not isinstance(product, tvm.tirx.Mul):
        return None
    pair = product.a, product.b
    is_plain = all(isinstance(each, tvm.ir.TensorLoad) and str(each.source.dtype) == _TYPE for each in pair)
    return pair if is_plain else None


def _sums_from_zero(init: Any, store: Any) -> bool:
    return (
        isinstance(init, tvm.tirx.BufferStore)
        and init.buffer.same_as(store.buffer)
        and _all_same(init.indices, list(store.indices))
        and isinstance(init.value, tvm.tirx.FloatImm)
        and float(init.value.value) == 0.0
        and str(store.buffer.dtype) == _TYPE
    )


def _sum_of(nest: Nest, data: Any, load: Any) -> WeightedSum | None:
    """The sum, with the data that the block itself reads, if indices are as they should be."""
    kept, reduced = nest.variables(reducing=False), nest.variables(reducing=True)
    shape = constant_shape(data.source)
    channel = data.indices[-1]
    if shape is None or not _is_one_of(channel, reduced) or shape[-1] != _extent(nest, channel):
        return None
    if not _reads_all(nest, load, [*reduced, kept[-1]]):
        return None
    places = [variable for variable in reduced if not variable.same_as(channel)]
    matrix = _matrix(nest, data, kept[:-1], places)
    image = None if matrix is not None else _image(nest, data, places, 1)
    if matrix is None and image is None:
        return None
    variables = (channel, kept[-1], None)
    return _made(nest, data, load, image or (1, Reach(), matrix or Reach(), (None, None)), variables, DENSE)


def _depthwise_sum_of(nest: Nest, data: Any, load: Any) -> WeightedSum | None:
    """The same of a sum over places of the kernel alone, in which each filter reads the channel of its number."""
    kept, reduced = nest.variables(reducing=False), nest.variables(reducing=True)
    shape = constant_shape(data.source)
    if shape is None or shape[-1] != _extent(nest, kept[-1]) or not _is_alone(data.indices[-1], kept[-1], nest):
        return None
    if not _reads_all(nest, load, [*reduced, kept[-1]]):
        return None
    image = _image(nest, data, reduced, 1)
    return None if image is None else _made(nest, data, load, image, (None, kept[-1], None), DEPTHWISE)


def _grouped_sum_of(nest: Nest, data: Any, load: Any) -> WeightedSum | None:
    """The same of a sum over channels with an axis of groups."""
    kept, reduced = nest.variables(reducing=False), nest.variables(reducing=True)
    shape = constant_shape(data.source)
    if shape is None or len(shape) < 2:
        return None
    group, channel = data.indices[-2:]
    if not group.same_as(kept[-2]) or shape[-2] != _extent(nest, group):
        return None
    if not _is_one_of(channel, reduced) or shape[-1] != _extent(nest, channel):
        return None
    if not _reads_all(nest, load, [*reduced, *kept[-2:]]):
        return None
    image = _image(nest, data, [variable for variable in reduced if not variable.same_as(channel)], 2)
    return None if image is None else _made(nest, data, load, image, (channel, kept[-1], group), GROUPED)


_READERS: dict[str, Callable[[Nest, Any, Any], WeightedSum | None]] = {
    DENSE: _sum_of,
    DEPTHWISE: _depthwise_sum_of,
    GROUPED: _grouped_sum_of,
}


def _made(nest: Nest, data: Any, load: Any, image: _Image, variables: tuple[Any, Any, Any], kind: str) -> WeightedSum:
    """The sum over these images, without blocks and positions (see `_match`).

    The variables are those of channel, filter and group; None where there is none.
    """
    images, rows, columns, places = image
    channel = variables[0]
    reduced = nest.variables(reducing=True)
    others = [variable for variable in reduced if channel is None or not variable.same_as(channel)]
    single = [variable for variable in others if _extent(nest, variable) == 1]
    return WeightedSum(
        nests=(),
        replaced=(),
        data=data.source,
        weights=load.source,
        result=nest.block.body.buffer,
        position=0,
        images=images,
        rows=rows,
        columns=columns,
        channels=int(data.source.shape[-1]),
        load=replaced(load, {variable: tvm.tirx.const(0, str(variable.ty.dtype)) for variable in single}),
        variables=(*places, *variables),
        kind=kind,
    )


def _reads_all(nest: Nest, load: Any, variables: Sequence[Any]) -> bool:
    """Whether a load reads all of a tensor, each element once, with the variables themselves as indices.

    Variables of one value need not be among the indices, but for the last one.
    """
    shape = constant_shape(load.source)
    if shape is None:
        return False
    found: list[Any] = []
    for index, extent in zip(load.indices, shape, strict=True):
        if extent == 1 and isinstance(index, tvm.tirx.IntImm):
            continue
        if not _is_one_of(index, variables) or _is_one_of(index, found) or _extent(nest, index) != extent:
            return False
        found.append(index)
    missing = [variable for variable in variables if not _is_one_of(variable, found)]
    return all(_extent(nest, variable) == 1 for variable in missing) and _is_one_of(variables[-1], found)


def _matrix(nest: Nest, data: Any, kept: Sequence[Any], places: Sequence[Any]) -> Reach | None:
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


def _is_alone(index: Any, variable: Any, nest: Nest) -> bool:
    """Whether an index is a variable, to which only variables of extent 1 are added."""
    coefficients = linear(index, [each.var for each in nest.block.iter_vars])
    if coefficients is None or coefficients.constant:
        return False
    others = [(each, by) for each, by in coefficients.factors if by and _extent(nest, each) > 1]
    return len(others) == 1 and others[0][0].same_as(variable) and others[0][1] == 1


def _image(nest: Nest, data: Any, places: Sequence[Any], inner: int) -> _Image | None:
    """The images, what is read along their two axes, and the variables of the kernel's places.

    Data and result have `inner` further axes after those of images, rows and columns.
    """
    shape, kept = constant_shape(data.source) or (), nest.variables(reducing=False)
    if len(shape) != _IMAGE + inner or len(kept) != _IMAGE + inner:
        return None
    n = kept[0]
    first = data.indices[0]
    single = isinstance(first, tvm.tirx.IntImm) and int(first) == 0 and shape[0] == 1
    if not (single or first.same_as(n)) or _extent(nest, n) != shape[0]:
        return None
    found = [_reach(nest, data.indices[axis], kept[axis], places, shape[axis]) for axis in (1, 2)]
    rows, columns = found
    if rows is None or columns is None:
        return None
    used = [variable for _, variable in (rows, columns) if variable is not None]
    unused = [each for each in places if not _is_one_of(each, used)]
    if any(_extent(nest, each) > 1 for each in unused) or (len(used) > 1 and used[0].same_as(used[1])):
        return None
    return shape[0], rows[0], columns[0], (rows[1], columns[1])


def _reach(nest: Nest, index: Any, position: Any, places: Sequence[Any], size: int) -> tuple[Reach, Any] | None:
    """What an index of the data reads along its axis, and the variable of the kernel's places in it, if any."""
    coefficients = linear(index, [each.var for each in nest.block.iter_vars])
    if coefficients is None or coefficients.constant:
        return None
    stride, dilation, place = 1, 1, None
    for variable, by in coefficients.factors:
        if variable.same_as(position):
            stride = by
        elif by and _is_one_of(variable, places) and place is None:
            dilation, place = by, variable
        elif by:
            return None
    kernel = 1 if place is None else _extent(nest, place)
    results = _extent(nest, position)
    if stride < 1 or dilation < 1 or (results - 1) * stride + (kernel - 1) * dilation >= size:
        return None
    return Reach(size, results, kernel, stride, dilation if kernel > 1 else 1), place


class _Linear(NamedTuple):
    constant: int
    factors: tuple[tuple[Any, int], ...]


def linear(index: Any, variables: Sequence[Any]) -> _Linear | None:
    """The index as a constant and a multiple of each variable; None where it is no such sum."""
    analyzer = tvm.sym.Analyzer()

    def at(chosen: Any) -> int | None:
        values = {each: tvm.tirx.const(int(each is chosen), str(each.ty.dtype)) for each in variables}
        value = analyzer.simplify(replaced(index, values))
        return int(value) if isinstance(value, tvm.tirx.IntImm) else None

    constant = at(None)
    if constant is None:
        return None
    factors = []
    rest = index - constant
    for each in variables:
        value = at(each)
        if value is None:
            return None
        factors.append((each, value - constant))
        rest = rest - each * (value - constant)
    simplified = analyzer.simplify(rest)
    return (
        _Linear(constant, tuple(factors)) if isinstance(simplified, tvm.tirx.IntImm) and not int(simplified) else None
    )


def _with_zeros(function: Any, found: WeightedSum, at: int) -> WeightedSum | None:
    """The sum that reads what a block of zeros around it reads, where its data is that block's alone."""
    padded, nests = found.data, found.nests
    is_parameter = any(parameter.same_as(padded) for parameter in function.params)
    writers = [i for i, nest in enumerate(nests) if _stores_to(nest, padded)]
    if is_parameter and not writers:
        return found
    readers = [i for i, nest in enumerate(nests) if loads_in(nest.block.body, padded)]
    if is_parameter or len(writers) != 1 or readers != [at]:
        return None
    zeros = zero_padding(nests[writers[0]])
    if zeros is None or not any(parameter.same_as(zeros.data) for parameter in function.params):
        return None
    shape = constant_shape(zeros.data) or ()
    if found.is_matrix:
        # rows of a matrix with zeros around would have to be renumbered
        return (
            None
            if any(zeros.before) or math.prod(shape[:-1]) != found.columns.size
            else _of(found, zeros.data, writers[0], at)
        )
    if zeros.before[0] or any(zeros.before[_IMAGE:]):
        return None
    if (shape[0], *shape[_IMAGE:]) != (found.images, *(constant_shape(padded) or ())[_IMAGE:]):
        return None
    changed = found._replace(
        rows=found.rows._replace(size=shape[1], before=zeros.before[1]),
        columns=found.columns._replace(size=shape[2], before=zeros.before[2]),
    )
    return _of(changed, zeros.data, writers[0], at)


def _of(found: WeightedSum, data: Any, writer: int, at: int) -> WeightedSum:
    return found._replace(data=data, replaced=(writer, at))


def _stores_to(nest: Nest, buffer: Any) -> bool:
    store = nest.block.body
    return isinstance(store, tvm.tirx.BufferStore) and bool(store.buffer.same_as(buffer))


def _extent(nest: Nest, variable: Any) -> int:
    return next(int(each.dom.extent) for each in nest.block.iter_vars if each.var.same_as(variable))


def _is_one_of(found: Any, variables: Sequence[Any]) -> bool:
    return any(variable.same_as(found) for variable in variables)


def _all_same(found: Any, wanted: Sequence[Any]) -> bool:
    return len(found) == len(wanted) and all(a.same_as(b) for a, b in zip(found, wanted, strict=True))
