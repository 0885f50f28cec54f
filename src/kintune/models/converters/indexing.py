"""`OneHot`, as a comparison with the places that an index may mean."""

from __future__ import annotations

import numpy as np
from tvm import relax

from kintune.models.converters.node import Converter, Node, dtype_of, is_integer, shape_of

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
    places = np.arange(size, dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(rank)])
    found = node.emit(relax.op.equal(node.emit(relax.op.expand_dims(indices, [axis])), relax.const(places, "int64")))
    off, on = (node.emit(relax.op.reshape(_element(node, values, place), ())) for place in (0, 1))
    return relax.op.where(found, on, off)


def _element(node: Node, values: relax.Expr, place: int) -> relax.Expr:
    return node.emit(relax.op.strided_slice(values, [0], [place], [place + 1]))


CONVERTERS: dict[str, Converter] = {"OneHot": Converter(_one_hot)}
"""Operator name -> the converter to use for it."""
