"""Operators that read or write by indices, which are marked: see `kintune.models.index_guard`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import Convert, OnnxOperator
from kintune.models.expressions import along_axis, dtype_of, is_integer, scatter_elements, scatter_nd, shape_of
from kintune.models.index_marks import mark_index

__all__ = ["OPERATORS"]


def _one_hot(node: Node) -> relax.Expr:
    """One-hot encoding; negative indices count from the end, and an index out of range leaves all values off."""
    indices, values = node.required(0), node.required(2)
    depth = node.constant(1)
    if depth is None:
        raise ValueError("it has no depth")
    size = int(depth.reshape(-1)[0])
    rank = len(shape_of(indices)) + 1
    axis = int(node.attributes.get("axis", -1)) % rank
    if not is_integer(dtype_of(indices)) or dtype_of(indices) != "int64":
        indices = node.emit(relax.op.astype(indices, "int64"))
    wrapped = node.emit(relax.op.add(indices, relax.const(np.int64(size), "int64")))
    negative = node.emit(relax.op.less(indices, relax.const(np.int64(0), "int64")))
    indices = node.emit(relax.op.where(negative, wrapped, indices))
    places = along_axis(np.arange(size, dtype=np.int64), axis, rank)
    found = node.emit(relax.op.equal(node.emit(relax.op.expand_dims(indices, [axis])), relax.const(places, "int64")))
    off, on = (node.emit(relax.op.reshape(_element(node, values, place), ())) for place in (0, 1))
    return relax.op.where(found, on, off)


def _element(node: Node, values: relax.Expr, place: int) -> relax.Expr:
    return node.emit(relax.op.strided_slice(values, [0], [place], [place + 1]))


def _axis(node: Node) -> int:
    return axis_of(int(node.attributes.get("axis", 0)), len(shape_of(node.required(0))))


def _along(node: Node, axis: int) -> relax.Expr:
    """The node's indices, marked as indices of one axis."""
    size = shape_of(node.required(0))[axis]
    return mark_index(node.builder, node.required(1), [size], axis, checked=not node.conditional)


def _tuples(node: Node, first: int) -> relax.Expr:
    """The node's indices, marked; their last dimension has one index for each of several axes from `first` on."""
    shape, count = shape_of(node.required(0)), shape_of(node.required(1))[-1]
    if first + count > len(shape):
        raise ValueError(f"{count} indices a place, for {len(shape) - first} dimensions")
    sizes = shape[first : first + count]
    return mark_index(node.builder, node.required(1), sizes, first, checked=not node.conditional)


def _gather(node: Node) -> relax.Expr:
    axis = _axis(node)
    return relax.op.take(node.required(0), _along(node, axis), axis)


def _gather_elements(node: Node) -> relax.Expr:
    axis = _axis(node)
    return relax.op.gather_elements(node.required(0), _along(node, axis), axis)


def _gather_nd(node: Node) -> relax.Expr:
    first = int(node.attributes.get("batch_dims", 0))
    return relax.op.gather_nd(node.required(0), _tuples(node, first), first)


def _scattered(scatter: Callable[[Node, relax.Expr, relax.Expr, str], relax.Expr]) -> Convert:
    """A converter of an operator that writes by index."""

    def convert(node: Node) -> relax.Expr:
        data, updates = node.required(0), node.required(2)
        reduction = str(node.attributes.get("reduction", "none"))
        if 0 in shape_of(node.required(1)):
            return data
        return scatter(node, data, updates, "update" if reduction == "none" else reduction)

    return convert


def _scatter_elements(node: Node, data: relax.Expr, updates: relax.Expr, reduction: str) -> relax.Expr:
    axis = _axis(node)
    return scatter_elements(node.emit, data, _along(node, axis), updates, axis, reduction)


def _scatter_nd(node: Node, data: relax.Expr, updates: relax.Expr, reduction: str) -> relax.Expr:
    return scatter_nd(node.emit, data, _tuples(node, 0), updates, reduction)


def _tensor_scatter(node: Node) -> relax.Expr:
    """A tensor in which a part along one axis is replaced; each batch has its own start of this part.

    In mode "circular", the part wraps around at the end of the axis; in mode "linear", it is cut off there.
    """
    data, update, starts = node.required(0), node.required(1), node.operand(2)
    shape, rank = shape_of(data), len(shape_of(data))
    axis = axis_of(int(node.attributes.get("axis", -2)), rank)
    size, written = shape[axis], shape_of(update)[axis]
    is_circular = str(node.attributes.get("mode", "linear")) == "circular"
    if axis == 0 or written > size:
        raise ValueError(f"{written} places along axis {axis} cannot replace some of {size} in each batch")

    def replaced(values: te.Tensor, part: te.Tensor, *begun: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            own = tirx.Cast("int64", place[axis]) - (tirx.Cast("int64", begun[0][place[0]]) if begun else 0)
            if is_circular:
                own = tirx.floormod(own, tirx.const(size, "int64"))
            inside = tirx.all(own >= 0, own < written)
            near = tirx.max(tirx.min(own, tirx.const(written - 1, "int64")), tirx.const(0, "int64"))
            source = (*place[:axis], near, *place[axis + 1 :])
            return tirx.Select(inside, part[source], values[place])

        return te.compute(shape, at, name="replaced")

    operands = [data, update] + ([] if starts is None else [starts])
    return node.builder.emit_te(replaced, *operands, primfunc_name_hint="tensor_scatter")


def _reverse_sequence(node: Node) -> relax.Expr:
    """Reverses the first values along the axis of time; each batch has its own number of them."""
    data, lengths = node.required(0), node.required(1)
    shape = shape_of(data)
    time, batch = (
        axis_of(int(node.attributes.get(f"{n}_axis", d)), len(shape)) for n, d in (("time", 0), ("batch", 1))
    )
    if {time, batch} != {0, 1}:
        raise ValueError(f"time is axis {time} and batch is axis {batch}: they must be the first two")

    def reversed_(values: te.Tensor, counts: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            step = tirx.Cast("int64", place[time])
            count = tirx.Cast("int64", counts[place[batch]])
            chosen = tirx.Select(step < count, count - 1 - step, step)
            near = tirx.max(tirx.min(chosen, tirx.const(shape[time] - 1, "int64")), tirx.const(0, "int64"))
            source = (*place[:time], near, *place[time + 1 :])
            return values[source]

        return te.compute(shape, at, name="reversed")

    return node.builder.emit_te(reversed_, data, lengths, primfunc_name_hint="reverse_sequence")


OPERATORS = (
    OnnxOperator("Gather", _gather, copies=True),
    OnnxOperator("GatherElements", _gather_elements),
    OnnxOperator("GatherND", _gather_nd),
    OnnxOperator("OneHot", _one_hot, constants={1: "depth"}),
    OnnxOperator("ReverseSequence", _reverse_sequence),
    OnnxOperator("Scatter", _scattered(_scatter_elements)),
    OnnxOperator("ScatterElements", _scattered(_scatter_elements)),
    OnnxOperator("ScatterND", _scattered(_scatter_nd)),
    OnnxOperator("TensorScatter", _tensor_scatter),
)
