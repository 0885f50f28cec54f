"""`Pad` of all operator sets and modes, with constant amounts."""

from __future__ import annotations

import numpy as np
from tvm import relax

from kintune.models.converters.node import Convert, Node
from kintune.models.expressions import constant_of, dtype_of, shape_of

__all__ = ["CONVERTERS"]

_CONSTANT = "constant"
_NUMPY_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
"""Mode of the operator -> mode of `numpy.pad`, which says where each element comes from."""


def _pad(node: Node) -> relax.Expr:
    data = node.required(0)
    mode = str(node.attributes.get("mode", _CONSTANT))
    if mode != _CONSTANT and mode not in _NUMPY_MODES:
        raise ValueError(f"mode {mode!r} is not known")
    amounts = _amounts(node, len(shape_of(data)))
    data = _cut(node, data, amounts)
    added = [(max(before, 0), max(after, 0)) for before, after in amounts]
    if not any(before or after for before, after in added):
        return data
    if mode == _CONSTANT:
        return relax.op.nn.pad(data, [amount for pair in added for amount in pair], "constant", _value(node, data))
    for axis, pair in enumerate(added):
        if any(pair):
            places = np.pad(np.arange(shape_of(data)[axis], dtype=np.int64), pair, mode=_NUMPY_MODES[mode])  # type: ignore[call-overload]
            data = node.emit(relax.op.take(data, relax.const(places, "int64"), axis, mode="clip"))
    return data


def _amounts(node: Node, rank: int) -> list[tuple[int, int]]:
    """How many elements each axis gets before and after; fewer than none are taken away."""
    name = "paddings" if "paddings" in node.attributes else "pads"
    given = node.given_integers(name, 1)
    if given is None:
        raise ValueError("it has no pads")
    axes = node.given_integers("axes", 3)
    chosen = range(rank) if axes is None else [axis % rank for axis in axes]
    if len(given) != 2 * len(chosen):
        raise ValueError(f"{len(given)} pads are not two for each of {len(chosen)} axes")
    amounts = [(0, 0)] * rank
    for position, axis in enumerate(chosen):
        amounts[axis] = (int(given[position]), int(given[position + len(chosen)]))
    return amounts


def _cut(node: Node, data: relax.Expr, amounts: list[tuple[int, int]]) -> relax.Expr:
    """The data without what negative amounts take away."""
    shape = shape_of(data)
    cut = [axis for axis, pair in enumerate(amounts) if min(pair) < 0]
    if not cut:
        return data
    begins = [max(-amounts[axis][0], 0) for axis in cut]
    ends = [shape[axis] - max(-amounts[axis][1], 0) for axis in cut]
    return node.emit(relax.op.strided_slice(data, cut, begins, ends))


def _value(node: Node, data: relax.Expr) -> float | int:
    operand = node.operand(2)
    if operand is None:
        return _number(node.attributes.get("value", 0), dtype_of(data))
    value = constant_of(operand)
    if value is None:
        raise ValueError("its constant_value is no constant; fix it with --constant NAME=VALUE")
    return _number(value.reshape(-1)[0], dtype_of(data))


def _number(value: object, dtype: str) -> float | int:
    return float(value) if dtype.startswith(("float", "bfloat")) else int(value)  # type: ignore[arg-type,call-overload]


CONVERTERS: dict[str, Convert] = {"Pad": _pad}
"""Operator -> what converts it."""
