"""Rules for operators that read or write by indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import ALL, FLOATS, LeafRole

__all__ = ["RULES"]


def _gather(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    computed = d.chance(0.2)
    fits = [
        n
        for n in d.visible
        if isinstance(v := d.graph.values[n], np.ndarray)
        and v.dtype.name in ("int32", "int64")
        and 0 < v.size < 300
        and v.min() >= 0
        and v.max() < shape[axis]
    ]
    indices = d.choice(fits) if computed and fits else d.indices(d.shape(d.integer(0, 2)), shape[axis])
    d.node(operator, [x, indices], {"axis": axis})


def _elements(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3), where=lambda v: v.size > 0)
    value = d.array(x)
    axis = d.axis(value.ndim)
    shape = [d.integer(1, extent) for extent in value.shape]
    if operator == "GatherElements":
        shape[axis] = d.extent(17)
        d.node(operator, [x, d.indices(tuple(shape), value.shape[axis])], {"axis": axis})
        return
    attributes: Attributes = {"axis": axis}
    if operator == "ScatterElements" and d.opset >= 16 and d.chance(0.7):
        attributes["reduction"] = d.choice(("add", "mul", "max", "min")[: 2 if d.opset < 18 else 4])
        indices = d.indices(tuple(shape), value.shape[axis])
    else:
        indices = d.constant(_unique_places(d, shape, axis % value.ndim, value.shape[axis]))
    d.node(operator, [x, indices, d.tensor((value.dtype.name,), shape=tuple(shape))], attributes)


def _unique_places(d: Drawer, shape: list[int], axis: int, size: int) -> Any:
    """Indices along an axis of `size` elements, of which no two in a line are equal."""
    lines = [extent for at, extent in enumerate(shape) if at != axis]
    places = d.rng.permuted(np.broadcast_to(np.arange(size), (*lines, size)), axis=-1)
    return np.moveaxis(places[..., : shape[axis]], -1, axis)


def _gather_nd(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3, 4), where=lambda v: v.size > 0)
    value = d.array(x)
    batch = d.integer(0, value.ndim - 1) if operator == "GatherND" and d.opset >= 12 and d.chance(0.3) else 0
    depth = d.integer(1, value.ndim - batch)
    outer = (*value.shape[:batch], *(d.extent(17) for _ in range(d.integer(0, 2))))
    sizes = value.shape[batch : batch + depth]
    if operator == "GatherND":
        places = np.stack([d.rng.integers(0, size, outer) for size in sizes], axis=-1)
        indices = d.leaf("int64", places.shape, LeafRole(0, min(sizes) - 1)) if d.chance(0.5) else d.constant(places)
        d.node(operator, [x, indices], {"batch_dims": batch} if batch else {})
        return
    attributes: Attributes = {}
    most = math.prod(sizes)
    number = min(math.prod(outer), most)
    if d.opset >= 16 and d.chance(0.6):
        attributes["reduction"] = d.choice(("add", "mul", "max", "min")[: 2 if d.opset < 18 else 4])
        flat = d.rng.integers(0, most, number)
    else:
        flat = d.rng.choice(most, number, replace=False)
    places = np.stack(np.unravel_index(flat, sizes), axis=-1)
    updates = d.tensor((value.dtype.name,), shape=(number, *value.shape[depth:]))
    d.node(operator, [x, d.constant(places), updates], attributes)


def _compress(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(1, 2, 3), where=lambda v: v.size > 0)
    value = d.array(x)
    axis = d.axis(value.ndim) if d.chance(0.7) else None
    taken = d.rng.random(value.size if axis is None else value.shape[axis]) < 0.6
    d.node(operator, [x, d.constant(taken, "bool")], {} if axis is None else {"axis": axis})


def _one_hot(d: Drawer, operator: str) -> None:
    size = d.extent(17)
    indices = d.indices(d.shape(d.integer(0, 2)), size, "int64")
    if d.chance(0.2):  # some are no places: all of their values are `off`
        indices = d.leaf(d.choice(("int64", "int32", "float32")), d.array(indices).shape, LeafRole(-size - 1, size + 1))
    values = d.leaf(d.choice(("float32", "int64", "int32")), (2,))
    rank = d.array(indices).ndim + 1
    d.node(operator, [indices, d.constant(size), values], {"axis": d.choice((-1, d.integer(-rank, rank - 1)))})


def _top_k(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS if d.opset < 11 else (*FLOATS, "int32", "int64"), rank=(1, 2, 3), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    k = d.integer(1, shape[axis])
    attributes: Attributes = {"axis": axis}
    if d.opset >= 11:
        attributes["largest"] = d.integer(0, 1)
    if d.opset < 10:
        d.node(operator, [x], attributes | {"k": k}, 2)
    else:
        d.node(operator, [x, d.constant([k])], attributes, 2)


def _trilu(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(2, 3, 4))
    d.node(operator, [x, *([d.constant(d.integer(-3, 3))] if d.chance(0.5) else [])], {"upper": d.integer(0, 1)})


def _cumulative(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64", "int32", "int64"), rank=(1, 2, 3))
    axis = d.constant(d.axis(d.array(x).ndim), d.choice(("int32", "int64")))
    d.node(operator, [x, axis], {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)})


def _reverse_sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL, rank=(2, 3), where=lambda v: v.size > 0)
    batch, time = d.choice(((0, 1), (1, 0)))
    shape = d.array(x).shape
    lengths = d.leaf("int64", (shape[batch],), LeafRole(1, shape[time]))
    d.node(operator, [x, lengths], {"batch_axis": batch, "time_axis": time})


def _tensor_scatter(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(3, 4), where=lambda v: v.size > 0)
    value = d.array(x)
    axis = value.ndim - 2
    steps = d.integer(1, value.shape[axis])
    shape = (*value.shape[:axis], steps, *value.shape[axis + 1 :])
    starts = d.leaf("int64", (value.shape[0],), LeafRole(0, value.shape[axis] - steps))
    d.node(operator, [x, d.tensor((value.dtype.name,), shape=shape), starts], {"axis": -2})


RULES: dict[str, Rule] = {
    "Gather": _gather,
    **dict.fromkeys(("GatherElements", "ScatterElements", "Scatter"), _elements),
    **dict.fromkeys(("GatherND", "ScatterND"), _gather_nd),
    "Compress": _compress,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Trilu": _trilu,
    **dict.fromkeys(("CumSum", "CumProd"), _cumulative),
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
}
