"""Operators that read or write by indices, which are marked: see `kintune.models.index_guard`."""

from __future__ import annotations

import numpy as np
from tvm import relax

from kintune.models.converters.node import Convert, Node, axis_of
from kintune.models.expressions import along_axis, dtype_of, is_integer, scatter_elements, shape_of
from kintune.models.index_marks import mark_index

__all__ = ["CONVERTERS"]


def _one_hot(node: Node) -> relax.Expr:
    """Negative indices count from the end; an index that means no place leaves all values off."""
    indices, values = node.required(0), node.required(2)
    depth = node.constant(1, "depth")
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
    """The node's indices, all of one axis."""
    size = shape_of(node.required(0))[axis]
    return mark_index(node.builder, node.required(1), [size], axis, checked=not node.conditional)


def _tuples(node: Node, first: int) -> relax.Expr:
    """The node's indices, whose last dimension is a place in several axes from `first` on."""
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


def _reduction(node: Node) -> str:
    given = str(node.attributes.get("reduction", "none"))
    return "update" if given == "none" else given


def _scatter_elements(node: Node) -> relax.Expr:
    axis = _axis(node)
    if 0 in shape_of(node.required(1)):
        return node.required(0)
    index = _along(node, axis)
    return scatter_elements(node.emit, node.required(0), index, node.required(2), axis, _reduction(node))


def _scatter_nd(node: Node) -> relax.Expr:
    if 0 in shape_of(node.required(1)):
        return node.required(0)
    return relax.op.scatter_nd(node.required(0), _tuples(node, 0), node.required(2), _reduction(node))


CONVERTERS: dict[str, Convert] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
"""Operator -> what converts it."""
