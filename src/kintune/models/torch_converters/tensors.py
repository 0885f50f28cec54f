"""Operators that move elements: shapes, slices, joins, elements at indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tvm import relax

from kintune.models.converters.indexing import scatter_elements, scatter_nd
from kintune.models.converters.shaping import padded
from kintune.models.expressions import dtype_of, is_float, is_integer, shape_of
from kintune.models.formulas import Real, choose
from kintune.models.torch_converters.translation import (
    Converter,
    Expression,
    NotConvertible,
    Translation,
    torch_type,
)

__all__ = ["CONVERTERS", "MOVES", "taken_in_order"]


def _view(t: Translation, a: SimpleNamespace) -> Expression:
    return t.reshape(a.self, t.result.shape)


def _expand(t: Translation, a: SimpleNamespace) -> Expression:
    return t.expand(a.self, t.result.shape)


def _permute(t: Translation, a: SimpleNamespace) -> Expression:
    return t.permute(a.self, [dim % len(a.dims) for dim in a.dims])


def _transpose(t: Translation, a: SimpleNamespace) -> Expression:
    axes = list(range(len(shape_of(a.self))))
    if len(axes) > 1:
        first, second = getattr(a, "dim0", 0), getattr(a, "dim1", 1)
        axes[first], axes[second] = axes[second], axes[first]
    return t.permute(a.self, axes)


def _slice(t: Translation, a: SimpleNamespace) -> Expression:
    axis = a.dim % len(shape_of(a.self))
    begin, end, step = slice(a.start, a.end, a.step).indices(shape_of(a.self)[axis])
    return t.nothing() if 0 in t.result.shape else t.slice(a.self, axis, begin, end, step)


def _select(t: Translation, a: SimpleNamespace) -> Expression:
    axis = a.dim % len(shape_of(a.self))
    at = a.index % shape_of(a.self)[axis]
    return t.reshape(t.slice(a.self, axis, at, at + 1), t.result.shape)


def _split(t: Translation, a: SimpleNamespace) -> Expression:
    """Parts of given sizes along one axis; parts that nothing reads are left out."""
    axis = getattr(a, "dim", 0) % len(shape_of(a.self))
    parts: list[Any] = []
    begin = 0
    for number, result in enumerate(t.results):
        assert result is not None
        end = begin + result.shape[axis]
        parts.append(t.slice(a.self, axis, begin, end) if number in t.used else None)
        begin = end
    return tuple(parts)


def _unbind(t: Translation, a: SimpleNamespace) -> Expression:
    axis = a.dim % len(shape_of(a.self))
    return tuple(
        t.reshape(t.slice(a.self, axis, i, i + 1), result.shape) if i in t.used and result is not None else None
        for i, result in enumerate(t.results)
    )


def _cat(t: Translation, a: SimpleNamespace) -> Expression:
    """Joined along an axis; tensors without elements, which may be of rank 1, add nothing."""
    full = [value for value in a.tensors if 0 not in shape_of(value)]
    if not full:
        return t.nothing()
    return t.concat([t.cast(value, t.result.dtype) for value in full], a.dim % len(t.result.shape))


def _stack(t: Translation, a: SimpleNamespace) -> Expression:
    axis = a.dim % len(t.result.shape)
    shape = [*t.result.shape]
    shape[axis] = 1
    return t.concat([t.reshape(t.cast(value, t.result.dtype), shape) for value in a.tensors], axis)


def _padded(mode: str) -> Converter:
    """Padding by constants, or with the tensor's own elements; a negative amount takes elements away."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        given = a.pad if mode == "constant" else a.padding
        amounts = list(zip(given[::2], given[1::2], strict=True))[::-1]
        lead = [(0, 0)] * (len(shape_of(a.self)) - len(amounts))
        return padded(t, a.self, [*lead, *amounts], mode, getattr(a, "value", None) or 0)

    return convert


def _moved(t: Translation, a: SimpleNamespace, operator: Any, *arguments: Any) -> Expression:
    """Any operator that only moves elements, as a lookup through a table of where each element comes from."""
    count = math.prod(shape_of(a.self))
    if not count or 0 in t.result.shape:
        return t.nothing()
    origin = operator(torch.arange(count).reshape(shape_of(a.self)), *arguments)
    return t.take(t.reshape(a.self, [count]), origin, 0)


def _as_strided(t: Translation, a: SimpleNamespace) -> Expression:
    return _moved(t, a, lambda _: _places(t, a))


def _places(t: Translation, a: SimpleNamespace) -> torch.Tensor:
    """The number of the element at each place of a view by strides, which are those of memory.

    Raises:
        NotConvertible: there are places that the operand, itself a view, does not have.
    """
    given = t.first
    start = given.storage_offset()
    memory = torch.full((given.untyped_storage().nbytes() // given.element_size(),), -1)
    numbers = torch.arange(given.numel()).reshape(given.shape)
    memory.as_strided(given.shape, given.stride(), start).copy_(numbers)
    places = memory.as_strided(a.size, a.stride, start if a.storage_offset is None else a.storage_offset)
    if (places < 0).any():
        raise NotConvertible("it reads elements of a tensor of which its operand is a part")
    return places


def _as_strided_scatter(t: Translation, a: SimpleNamespace) -> Expression:
    return _replaced(t, a, _places(t, a).flatten())


def _diagonal_scatter(t: Translation, a: SimpleNamespace) -> Expression:
    numbers = torch.arange(math.prod(shape_of(a.self))).reshape(shape_of(a.self))
    return _replaced(t, a, numbers.diagonal(a.offset, a.dim1, a.dim2).flatten())


def _replaced(t: Translation, a: SimpleNamespace, places: torch.Tensor) -> Expression:
    """Elements replaced at these places, by number."""
    size = math.prod(shape_of(a.self))
    origin = torch.arange(size).index_put((places,), size + torch.arange(len(places)))
    values = t.reshape(t.cast(a.src, dtype_of(a.self)), [len(places)])
    both = t.concat([t.reshape(a.self, [size]), values], 0)
    return t.reshape(t.take(both, origin, 0), t.result.shape)


def _roll(t: Translation, a: SimpleNamespace) -> Expression:
    value = a.self
    if not a.dims:
        value = t.reshape(value, [math.prod(shape_of(value))])
    dims = [dim % len(shape_of(value)) for dim in a.dims] or [0]
    for shift, axis in zip(a.shifts, dims, strict=True):
        size = shape_of(value)[axis]
        at = -shift % size if size else 0
        if at:
            value = t.concat([t.slice(value, axis, at, size), t.slice(value, axis, 0, at)], axis)
    return t.reshape(value, t.result.shape)


def _flip(t: Translation, a: SimpleNamespace) -> Expression:
    value = a.self
    for dim in a.dims:
        value = t.emit(relax.op.flip(value, dim % len(shape_of(value)))) if shape_of(value) else value
    return value


def _repeat(t: Translation, a: SimpleNamespace) -> Expression:
    return t.nothing() if 0 in t.result.shape else t.emit(relax.op.tile(a.self, list(a.repeats)))


def _index_select(t: Translation, a: SimpleNamespace) -> Expression:
    if not shape_of(a.self):
        return t.reshape(a.self, t.result.shape)
    axis = a.dim % len(shape_of(a.self))
    index = t.index(t.reshape(a.index, [math.prod(shape_of(a.index))]), shape_of(a.self)[axis], axis)
    return t.emit(relax.op.take(a.self, index, axis=axis))


def _index(t: Translation, a: SimpleNamespace) -> Expression:
    """Lookup by one index tensor or several, which are broadcast against each other."""
    shape = shape_of(a.self)
    axes = [axis for axis, index in enumerate(a.indices) if index is not None]
    indices = [a.indices[axis] for axis in axes]
    if 0 in t.result.shape:
        return t.nothing()
    if any(not is_integer(dtype_of(index)) for index in indices):
        raise ValueError("an index of booleans, whose result has a size that depends on the data")
    wrapped = [
        t.cast(t.index(index, shape[axis], axis, negative=True), "int64")
        for index, axis in zip(indices, axes, strict=True)
    ]
    if len(axes) == 1:
        return t.emit(relax.op.take(a.self, wrapped[0], axis=axes[0]))
    joint = np.broadcast_shapes(*[shape_of(index) for index in wrapped])
    others = [axis for axis in range(len(shape)) if axis not in axes]
    flat = Real(t, wrapped[0])
    for index, axis in zip(wrapped[1:], axes[1:], strict=True):
        flat = flat * shape[axis] + Real(t, index)
    first = t.permute(a.self, axes + others)
    rest = [shape[axis] for axis in others]
    table = t.reshape(first, [math.prod(shape[axis] for axis in axes), *rest])
    found = t.emit(relax.op.take(table, flat.value, axis=0))
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    lead = axes[0] if adjacent else 0
    if lead:
        count = len(joint)
        order = [*range(count, count + lead), *range(count), *range(count + lead, count + len(rest))]
        found = t.permute(found, order)
    return t.reshape(found, t.result.shape)


def _index_put(t: Translation, a: SimpleNamespace) -> Expression:
    """Slices replaced, or added to, at the places that one index tensor or several name together."""
    shape = shape_of(a.self)
    axes = [axis for axis, index in enumerate(a.indices) if index is not None]
    indices = [a.indices[axis] for axis in axes]
    values = t.cast(a.values, dtype_of(a.self))
    if not axes or any(0 in shape_of(value) for value in (a.self, values, *indices)):
        return a.self if axes else t.expand(values, shape)
    if any(not is_integer(dtype_of(index)) for index in indices):
        if len(indices) > 1:
            raise NotConvertible("an index of booleans beside others")
        return _masked_put(t, a, axes[0], indices[0], values)
    joint = np.broadcast_shapes(*[shape_of(index) for index in indices])
    places = [
        t.reshape(t.expand(t.cast(t.index(index, shape[axis], axis, negative=True), "int64"), joint), [*joint, 1])
        for index, axis in zip(indices, axes, strict=True)
    ]
    others = [axis for axis in range(len(shape)) if axis not in axes]
    rest = [shape[axis] for axis in others]
    lead = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    values = t.expand(values, [*rest[:lead], *joint, *rest[lead:]])
    count = len(joint)
    if lead and count:
        order = [*range(lead, lead + count), *range(lead), *range(lead + count, count + len(rest))]
        values = t.emit(relax.op.permute_dims(values, order))
    order = axes + others
    reduction = "add" if a.accumulate else "update"
    written = scatter_nd(t, t.permute(a.self, order), t.concat(places, count), values, reduction)
    return t.permute(written, [order.index(i) for i in range(len(shape))])


def _masked_put(t: Translation, a: SimpleNamespace, axis: int, mask: Expression, values: Expression) -> Expression:
    """Values in order, or one for all, wherever a mask of the dimensions from `axis` on is set."""
    extents, after = shape_of(mask), len(shape_of(a.self)) - axis - len(shape_of(mask))
    own = (*[1] * (axis + 1 + after - len(shape_of(values))), *shape_of(values))
    values, mask, placed = t.reshape(values, own), t.cast(mask, "bool"), [1] * len(extents)
    if own[axis] > 1:
        values, placed = taken_in_order(t, mask, values, axis), list(extents)
    values = t.reshape(values, [*own[:axis], *placed, *own[axis + 1 :]])
    if a.accumulate:
        add = relax.op.logical_or if dtype_of(values) == "bool" else relax.op.add
        values = t.emit(add(a.self, values))
    return t.emit(relax.op.where(t.reshape(mask, [*extents, *[1] * after]), values, a.self))


def taken_in_order(t: Translation, mask: Expression, source: Expression, axis: int) -> Expression:
    """For each element of a mask, flattened, the slice of `source` with its number among those that are set.

    There must be as many slices, which is checked where there could be fewer.
    """
    flat = Real(t, t.reshape(mask, [math.prod(shape_of(mask))]))
    number = choose(flat, flat.cast("int64").cumsum(axis=0) - 1, 0).value
    if shape_of(source)[axis] < math.prod(shape_of(mask)):
        number = t.index(number, shape_of(source)[axis], axis)
    return t.emit(relax.op.take(source, number, axis=axis))


_REDUCTIONS = {
    None: "update",
    "add": "add",
    "sum": "add",
    "mean": "add",
    "multiply": "mul",
    "prod": "mul",
    "amin": "min",
    "amax": "max",
}
"""How values meet what is there: PyTorch's names, and those of the compiler."""


def _scatter(t: Translation, a: SimpleNamespace) -> Expression:
    """Elements replaced, or combined, each at its own coordinates but for one, which an index gives."""
    where, dtype = shape_of(a.index), dtype_of(a.self)
    name = getattr(a, "reduce", None)
    if name == "mean" and not is_float(dtype):
        raise NotConvertible("means of integers")
    if 0 in where:
        return a.self
    source = _scattered(t, a, where, dtype)
    shape = shape_of(a.self)
    data = a.self
    if not shape:
        shape = where = (1,)
        data, source, a.index = (t.reshape(value, [1]) for value in (a.self, source, a.index))
    axis = a.dim % len(shape)
    index = t.index(a.index, shape[axis], axis)

    def put(data: Expression, values: Expression, reduction: str) -> Expression:
        return scatter_elements(t, data, index, values, axis, reduction)

    ones, count, to = t.full(where, 1, dtype), t.full(shape, 1, dtype), Real(t, data)
    if not getattr(a, "include_self", True):  # what is there counts only where nothing is put
        reached = Real(t, put(t.full(shape, 0, dtype), ones, "update")).cast("bool")
        to = choose(reached, _neutral(name, dtype), to)
        count = choose(reached, 0, Real(t, count)).value
    found = Real(t, put(to.value, source, _REDUCTIONS[name]))
    if name in ("amin", "amax") and is_float(dtype):  # TVM's kernel loses values that are no numbers
        before, new = (Real(t, t.wide(each)).isnan().cast("float32").value for each in (to.value, source))
        found = choose(Real(t, put(before, new, "max")) > 0.0, math.nan, found)
    if name == "mean":
        found = found / Real(t, put(count, ones, "add"))
    return t.reshape(found.value, t.result.shape)


def _scattered(t: Translation, a: SimpleNamespace, where: Sequence[int], dtype: str) -> Expression:
    """The values to put, one for each index: a part of a tensor, or one number."""
    source = getattr(a, "src", None)
    if source is None and not isinstance(a.value, relax.Expr):
        return t.full(where, a.value, dtype)
    source = t.expand(t.cast(a.value, dtype), where) if source is None else t.cast(source, dtype)
    for axis, size in enumerate(where):
        source = t.slice(source, axis, 0, size)
    return source


def _neutral(reduction: str | None, dtype: str) -> float:
    """The number that changes nothing in a reduction of PyTorch."""
    if reduction in ("amin", "amax"):
        if is_float(dtype):
            return math.inf if reduction == "amin" else -math.inf
        if dtype == "bool":
            return reduction == "amin"
        limits = torch.iinfo(torch_type(dtype))
        return int(limits.max if reduction == "amin" else limits.min)
    return 1 if reduction == "prod" else 0


def _scatter_add(t: Translation, a: SimpleNamespace) -> Expression:
    a.reduce = "add"
    return _scatter(t, a)


def _gather(t: Translation, a: SimpleNamespace) -> Expression:
    """One element for each index, all other coordinates being the index's own."""
    shape, where = shape_of(a.self), shape_of(a.index)
    if not shape or 0 in where:
        return t.nothing() if 0 in where else t.reshape(a.self, t.result.shape)
    axis = a.dim % len(shape)
    return t.emit(relax.op.gather_elements(a.self, t.index(a.index, shape[axis], axis), axis))


def _slice_scatter(t: Translation, a: SimpleNamespace) -> Expression:
    """A slice replaced: what is before it, the new values, what is after it."""
    shape = shape_of(a.self)
    axis = a.dim % len(shape)
    size = shape[axis]
    begin, end, step = slice(a.start, a.end, a.step).indices(size)
    places = list(range(begin, end, step))
    if not places:
        return a.self
    if step == 1:
        parts = [t.slice(a.self, axis, 0, begin)] if begin else []
        parts.append(t.cast(a.src, dtype_of(a.self)))
        parts += [t.slice(a.self, axis, end, size)] if end < size else []
        return t.concat(parts, axis)
    origin = np.arange(size)
    origin[places] = size + np.arange(len(places))
    return t.take(t.concat([a.self, t.cast(a.src, dtype_of(a.self))], axis), origin, axis)


def _select_scatter(t: Translation, a: SimpleNamespace) -> Expression:
    shape = [*shape_of(a.self)]
    axis = a.dim % len(shape)
    at = a.index % shape[axis]
    shape[axis] = 1
    a.src = t.reshape(a.src, shape)
    a.start, a.end, a.step = at, at + 1, 1
    return _slice_scatter(t, a)


_VIEWS: tuple[str, ...] = ("view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default")
_VIEWS += ("squeeze.default", "squeeze.dim", "squeeze.dims", "flatten.using_ints", "unflatten.int", "view_copy.default")
_SPLITS = ("split_with_sizes.default", "split.Tensor", "chunk.default", "split.sizes", "unbind.int")

MOVES = frozenset(
    {
        *(*_VIEWS, *_SPLITS, "expand.default", "permute.default", "transpose.int", "t.default", "slice.Tensor"),
        *("select.int", "roll.default", "flip.default", "repeat.default", "diagonal.default", "index_select.default"),
    }
)
"""Operators whose results have elements of their first tensor, and nothing but these."""

CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(_VIEWS, _view),
    "expand.default": _expand,
    "copy.default": lambda t, a: t.expand(t.cast(a.src, t.result.dtype), t.result.shape),
    "copy_strided.default": lambda t, a: a.a,
    "permute.default": _permute,
    **dict.fromkeys(("transpose.int", "t.default"), _transpose),
    "slice.Tensor": _slice,
    "select.int": _select,
    **dict.fromkeys(_SPLITS[:-1], _split),
    "unbind.int": _unbind,
    "cat.default": _cat,
    "stack.default": _stack,
    "constant_pad_nd.default": _padded("constant"),
    **{f"reflection_pad{n}d.default": _padded("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": _padded("edge") for n in (1, 2, 3)},
    "roll.default": _roll,
    "flip.default": _flip,
    "repeat.default": _repeat,
    "diagonal.default": lambda t, a: _moved(t, a, torch.diagonal, a.offset, a.dim1, a.dim2),
    "as_strided.default": _as_strided,
    "unfold.default": lambda t, a: _moved(t, a, torch.ops.aten.unfold.default, a.dimension, a.size, a.step),
    "index_select.default": _index_select,
    **dict.fromkeys(("index.Tensor", "_unsafe_index.Tensor"), _index),
    "gather.default": _gather,
    **dict.fromkeys(("index_put.default", "_unsafe_index_put.default"), _index_put),
    **dict.fromkeys(
        ("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_reduce.two"), _scatter
    ),
    "scatter_add.default": _scatter_add,
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
    "as_strided_scatter.default": _as_strided_scatter,
    "diagonal_scatter.default": _diagonal_scatter,
}
"""Operator of aten -> its converter."""
