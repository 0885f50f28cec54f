"""Recurrent layers: LSTM, GRU and RNN, with the loop over time in one kernel.

What the kernel does not support is refused: unusual activations, clipping, and coupled input and forget gates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax

from kintune.models.converters.node import Convert, Node
from kintune.models.expressions import HALVES, constant_of, dtype_of, shape_of
from kintune.models.index_marks import mark_index
from kintune.models.recurrence import FORWARD, GATES, GRU, LSTM, PEEPHOLES, RNN, Recurrence
from kintune.models.recurrent_layer import LayerWeights, folded, recurrent_layer

__all__ = ["CONVERTERS"]

_USUAL = {LSTM: ["sigmoid", "tanh", "tanh"], GRU: ["sigmoid", "tanh"], RNN: ["tanh"]}
_TYPES = ("float32", *HALVES)


def _activations(node: Node, cell: str, directions: int) -> bool:
    """Whether an RNN's activation is ReLU.

    Raises:
        ValueError: for activations other than the usual ones.
    """
    given = [_name(value) for value in node.attributes.get("activations", ())]
    usual = _USUAL[cell] * directions
    if given in ([], usual):
        return False
    if cell == RNN and given == ["relu"] * directions:
        return True
    raise ValueError(f"activations {', '.join(given)} are not supported")


def _name(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).lower()


def _refuse(node: Node, cell: str) -> None:
    """Refuse attributes and element types that the kernel does not support.

    Raises:
        ValueError: naming the first of them.
    """
    if node.attributes.get("clip", 0.0):
        raise ValueError("clipping is not supported")
    if node.attributes.get("input_forget", 0):
        raise ValueError("coupled input and forget gates are not supported")
    if dtype_of(node.required(0)) not in _TYPES:
        raise ValueError(f"elements of {dtype_of(node.required(0))} are not supported")


def _recurrent(cell: str) -> Callable[[Node], relax.Expr]:
    def convert(node: Node) -> relax.Expr:
        _refuse(node, cell)
        batch_first = bool(node.attributes.get("layout", 0))
        dtype = dtype_of(node.required(0))
        data = node.wide(node.required(0))
        if batch_first:
            data = node.emit(relax.op.permute_dims(data, [1, 0, 2]))
        steps, batch, _ = shape_of(data)
        hidden = shape_of(node.required(2))[-1]
        direction = _name(node.attributes.get("direction", FORWARD))
        lengths = _lengths(node, steps)
        peepholes = node.operand(7) if cell == LSTM else None
        recurrence = Recurrence(
            cell,
            direction,
            steps,
            batch,
            hidden,
            reset_after=cell == GRU and bool(node.attributes.get("linear_before_reset", 0)),
            relu=_activations(node, cell, 2 if direction == "bidirectional" else 1),
            lengths=lengths is not None,
            peepholes=peepholes is not None,
        )
        found = recurrent_layer(
            node.builder,
            node.builder.emit,
            recurrence,
            data,
            _weights(node, recurrence),
            initial_h=_state(node, 5, batch_first),
            initial_c=_state(node, 6, batch_first),
            lengths=lengths,
            peepholes=None if peepholes is None else _cells_to_gates(node, peepholes, recurrence),
        )
        results = [_result(node, value, batch_first, dtype) for value in found]
        return relax.Tuple(results[: max(node.outputs, 1)])

    return convert


def _weights(node: Node, r: Recurrence) -> LayerWeights:
    """The node's weights and biases; ONNX has the gates in the kernel's order."""
    weight, recurrent, bias = node.wide(node.required(1)), node.wide(node.required(2)), node.operand(3)
    directions, gates, hidden = r.directions, GATES[r.cell], r.hidden
    shapes = [shape_of(weight), shape_of(recurrent)]
    rows = gates * hidden
    if any(shape[:2] != (directions, rows) for shape in shapes):
        where = f"{hidden} units in {directions} directions"
        raise ValueError(f"weights of shapes {shapes[0]} and {shapes[1]} do not fit {where}")
    features = shapes[0][-1]

    def part(tensor: Any, place: int) -> Any:
        axes, begin, end = [1], [place], [place + 1]
        sliced = partial(relax.op.strided_slice, axes=axes, begin=begin, end=end, strides=[1])
        return folded(node.emit, lambda t: t[:, place : place + 1], sliced, tensor)

    found = LayerWeights(
        _reshaped(node, weight, [directions, gates, hidden, features]),
        _reshaped(node, recurrent, [directions, gates, hidden, hidden]),
    )
    if bias is None:
        return found
    both = _reshaped(node, node.wide(bias), [directions, 2, gates, hidden])
    given = [_reshaped(node, part(both, place), [directions, gates, hidden]) for place in range(2)]
    return found._replace(input_bias=given[0], recurrent_bias=given[1])


def _cells_to_gates(node: Node, peepholes: Any, r: Recurrence) -> Any:
    """The weights from the cell to the gates, [D, 3, H]: of the input, output and forget gate."""
    given, shape = node.wide(peepholes), [r.directions, PEEPHOLES, r.hidden]
    if shape_of(given) != (r.directions, PEEPHOLES * r.hidden):
        raise ValueError(
            f"peepholes of shape {shape_of(given)} do not fit {r.hidden} units in {r.directions} directions"
        )
    return _reshaped(node, given, shape)


def _reshaped(node: Node, tensor: Any, shape: list[int]) -> Any:
    return folded(node.emit, lambda t: t.reshape(shape), lambda t: relax.op.reshape(t, shape), tensor)


def _lengths(node: Node, steps: int) -> Any:
    """The sequences' lengths, marked to be checked; None where all have `steps` steps."""
    given = node.operand(4)
    if given is None:
        return None
    known = constant_of(given)
    if known is not None and (known == steps).all():
        return None
    lengths = node.cast(given, "int32")
    return mark_index(node.builder, lengths, [steps + 1], 0, negative=False, checked=not node.conditional)


def _state(node: Node, place: int, batch_first: bool) -> Any:
    given = node.operand(place)
    if given is None:
        return None
    wide = node.wide(given)
    return node.emit(relax.op.permute_dims(wide, [1, 0, 2])) if batch_first else wide


def _result(node: Node, value: Any, batch_first: bool, dtype: str) -> Any:
    if batch_first:
        axes = [2, 0, 1, 3] if len(shape_of(value)) == 4 else [1, 0, 2]
        value = node.emit(relax.op.permute_dims(value, axes))
    return node.cast(value, dtype)


CONVERTERS: dict[str, Convert] = {"GRU": _recurrent(GRU), "LSTM": _recurrent(LSTM), "RNN": _recurrent(RNN)}
"""Operator -> what converts it."""
