"""Operators that read or write by indices, which are marked: see `kintune.models.index_guard`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import OnnxOperator
from kintune.models.emitter import Emitter
from kintune.models.expressions import along_axis, dtype_of, shape_of
from kintune.models.formulas import Real, choose

__all__ = ["OPERATORS", "scatter_elements", "scatter_nd"]


def _one_hot(node: Node) -> relax.Expr:
    """One-hot encoding; negative indices count from the end, and an index out of range leaves all values off."""
    indices, values = node.required(0), node.required(2)
    depth = node.constant(1)
    if depth is None:
        raise ValueError("it has no depth")
    size = int(depth.reshape(-1)[0])
    rank = len(shape_of(indices)) + 1
    axis = int(node.attributes.get("axis", -1)) % rank
    x = Real(node, node.cast(indices, "int64"))
    x = choose(x < 0, x + size, x)
    found = node.emit(relax.op.expand_dims(x.value, [axis]))
    hit = Real(node, found).equal(Real(node, node.const(along_axis(np.arange(size), axis, rank), "int64")))
    off, on = (Real(node, node.reshape(node.slice(values, 0, place, place + 1), ())) for place in (0, 1))
    return choose(hit, on, off).value


def _axis(node: Node) -> int:
    return axis_of(int(node.attributes.get("axis", 0)), len(shape_of(node.required(0))))


def _along(node: Node, axis: int) -> relax.Expr:
    """The node's indices, marked as indices of one axis."""
    size = shape_of(node.required(0))[axis]
    return node.index(node.required(1), [size], axis)


def _tuples(node: Node, first: int) -> relax.Expr:
    """The node's indices, marked; their last dimension has one index for each of several axes from `first` on."""
    shape, count = shape_of(node.required(0)), shape_of(node.required(1))[-1]
    if first + count > len(shape):
        raise ValueError(f"{count} indices a place, for {len(shape) - first} dimensions")
    sizes = shape[first : first + count]
    return node.index(node.required(1), sizes, first)


def _gather(node: Node) -> relax.Expr:
    axis = _axis(node)
    return relax.op.take(node.required(0), _along(node, axis), axis)


def _gather_elements(node: Node) -> relax.Expr:
    axis = _axis(node)
    return relax.op.gather_elements(node.required(0), _along(node, axis), axis)


def _gather_nd(node: Node) -> relax.Expr:
    first = int(node.attributes.get("batch_dims", 0))
    return relax.op.gather_nd(node.required(0), _tuples(node, first), first)


def _reduction(node: Node) -> str:
    reduction = str(node.attributes.get("reduction", "none"))
    return "update" if reduction == "none" else reduction


def _scatter_elements(node: Node) -> relax.Expr:
    data, axis = node.required(0), _axis(node)
    if 0 in shape_of(node.required(1)):
        return data
    return scatter_elements(node, data, _along(node, axis), node.required(2), axis, _reduction(node))


def _scatter_nd(node: Node) -> relax.Expr:
    data = node.required(0)
    if 0 in shape_of(node.required(1)):
        return data
    return scatter_nd(node, data, _tuples(node, 0), node.required(2), _reduction(node))


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
            return tirx.if_then_else(inside, part[source], values[place])

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


def scatter_elements(t: Emitter, data: Any, index: Any, updates: Any, axis: int, reduction: str) -> Any:
    """A copy of `data` with `updates` written at `index` along `axis` (not negative), combined by `reduction`.

    This is ONNX's `ScatterElements` and PyTorch's `scatter`; `reduction` is that of `relax.op.scatter_elements`.  Of
    truth values, a sum is whether one is true, and a product whether all are.

    `index` and `updates` have one shape; along other axes than `axis` it may be smaller than that of `data`.  TVM's
    kernel writes to wrong positions when two axes lie on one side of `axis` and the inner one is smaller.  So it gets
    only the part of `data` that can be written, and the rest is concatenated.
    """
    sizes, wanted, part = shape_of(data), shape_of(index), data
    smaller = [at for at, size in enumerate(sizes) if at != axis and wanted[at] < size]
    for at in smaller:
        part = t.slice(part, at, 0, wanted[at])
    written = _reduced(
        t, part, updates, reduction, lambda to, new, how: relax.op.scatter_elements(to, index, new, axis, how)
    )
    for place, at in reversed(list(enumerate(smaller))):
        rest = t.slice(data, at, wanted[at], sizes[at])
        for before in smaller[:place]:
            rest = t.slice(rest, before, 0, wanted[before])
        written = t.concat([written, rest], at)
    return written


def scatter_nd(t: Emitter, data: Any, places: Any, updates: Any, reduction: str) -> Any:
    """A copy of `data` with `updates` written at `places`, combined by `reduction`, as by `relax.op.scatter_nd`.

    Truth values are combined as by `scatter_elements`.
    """
    return _reduced(t, data, updates, reduction, lambda to, new, how: relax.op.scatter_nd(to, places, new, how))


_OF_TRUTH_VALUES = {"add": "max", "max": "max", "mul": "min", "min": "min"}
"""Reductions of truth values -> those of 0 and 1."""


def _reduced(t: Emitter, data: Any, updates: Any, reduction: str, scatter: Callable[[Any, Any, str], Any]) -> Any:
    """What `scatter` writes; truth values are reduced as bytes, since the compiler's kernels are for numbers."""
    if dtype_of(data) != "bool" or reduction == "update":
        return t.emit(scatter(data, updates, reduction))
    data, updates = (t.cast(each, "uint8") for each in (data, updates))
    return t.cast(t.emit(scatter(data, updates, _OF_TRUTH_VALUES[reduction])), "bool")


OPERATORS = (
    OnnxOperator("Gather", _gather, copies=True),
    OnnxOperator("GatherElements", _gather_elements),
    OnnxOperator("GatherND", _gather_nd),
    OnnxOperator("OneHot", _one_hot, constants={1: "depth"}),
    OnnxOperator("ReverseSequence", _reverse_sequence),
    OnnxOperator("Scatter", _scatter_elements),
    OnnxOperator("ScatterElements", _scatter_elements),
    OnnxOperator("ScatterND", _scatter_nd),
    OnnxOperator("TensorScatter", _tensor_scatter),
)
