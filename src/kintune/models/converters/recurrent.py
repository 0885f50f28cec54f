"""Recurrent layers: LSTM, GRU, RNN, and onnxruntime's LSTM of bytes; the loop over time is in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from kintune.models.converters.integer_products import Triple, real_product
from kintune.models.converters.node import Node
from kintune.models.converters.quantised import dynamically_quantised
from kintune.models.converters.registration import MICROSOFT, OnnxOperator
from kintune.models.expressions import HALVES, constant_of, dtype_of, shape_of
from kintune.models.recurrence import ACTIVATIONS, FORWARD, GATES, GRU, LSTM, PEEPHOLES, RNN, Recurrence
from kintune.models.recurrent_equations import ACTIVATION_FUNCTIONS
from kintune.models.recurrent_layer import (
    LayerWeights,
    folded,
    layer_of_products,
    quantised_operands,
    recurrent_layer,
)

__all__ = ["OPERATORS"]

_TYPES = ("float32", *sorted(HALVES))


def _activations(node: Node, cell: str, directions: int) -> tuple[str, ...]:
    """The activations of all directions with their parameters; none if they are the usual ones.

    Raises:
        ValueError: for an activation that ONNX does not name.
    """
    given = [_name(value) for value in node.attributes.get("activations", ())] or [*ACTIVATIONS[cell] * directions]
    numbers = [list(node.attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")]
    found = []
    for name in given:
        if name not in ACTIVATION_FUNCTIONS:
            raise ValueError(f"activation {name} is not supported")
        defaults = ACTIVATION_FUNCTIONS[name][1]
        own = [each.pop(0) if each else default for each, default in zip(numbers, defaults, strict=False)]
        found.append(":".join([name, *(repr(float(number)) for number in own)]))
    return () if tuple(found) == ACTIVATIONS[cell] * directions else tuple(found)


def _name(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).lower()


def _described(node: Node, cell: str, data: relax.Expr, hidden: int, *, quantised: bool = False) -> Recurrence:
    """What a node computes from `data` [S, B, I], with sequences of one length and without peepholes.

    Raises:
        ValueError: naming an activation that is not supported.
    """
    steps, batch, _ = shape_of(data)
    direction = _name(node.attributes.get("direction", FORWARD))
    return Recurrence(
        cell,
        direction,
        steps,
        batch,
        hidden,
        reset_after=cell == GRU and bool(node.attributes.get("linear_before_reset", 0)),
        coupled=cell == LSTM and bool(node.attributes.get("input_forget", 0)),
        quantised=quantised,
        clip=float(node.attributes.get("clip", 0.0)),
        activations=_activations(node, cell, 2 if direction == "bidirectional" else 1),
    )


class _Operands(NamedTuple):
    """What layers of all cells may have: initial states, lengths and peepholes, and what they make of a recurrence."""

    initial: tuple[Any, Any]
    lengths: Any
    peepholes: Any

    @classmethod
    def of(cls, node: Node, r: Recurrence, batch_first: bool) -> tuple[Recurrence, _Operands]:
        lengths = _lengths(node, r.steps)
        peepholes = node.operand(7) if r.cell == LSTM else None
        own = replace(r, lengths=lengths is not None, peepholes=peepholes is not None)
        gates = None if peepholes is None else _cells_to_gates(node, peepholes, own)
        return own, cls((_state(node, 5, batch_first), _state(node, 6, batch_first)), lengths, gates)


def _recurrent(cell: str) -> Callable[[Node], relax.Expr]:
    def convert(node: Node) -> relax.Expr:
        batch_first, data = _data(node)
        hidden = shape_of(node.required(2))[-1]
        recurrence, o = _Operands.of(node, _described(node, cell, data, hidden), batch_first)
        weights = _weights(node, recurrence)
        found = recurrent_layer(
            node.builder, node.builder.emit, recurrence, data, weights, *o.initial, o.lengths, o.peepholes
        )
        return _results(node, found, batch_first)

    return convert


def _data(node: Node) -> tuple[bool, relax.Expr]:
    """Whether batches come first, and the data of float32 with the steps first."""
    batch_first = bool(node.attributes.get("layout", 0))
    data = node.wide(node.required(0))
    return batch_first, node.emit(relax.op.permute_dims(data, [1, 0, 2])) if batch_first else data


def _results(node: Node, found: list[Any], batch_first: bool) -> relax.Expr:
    dtype = dtype_of(node.required(0))
    results = [_result(node, value, batch_first, dtype) for value in found]
    return relax.Tuple(results[: max(node.outputs, 1)])


def _quantised_lstm(node: Node) -> relax.Expr:
    """DynamicQuantizeLSTM of onnxruntime: weights in bytes, data and states quantised by their own ranges.

    Each sequence is quantised for itself; onnxruntime quantises those together that one of its threads has.

    Raises:
        ValueError: when scales or zero points are computed by the network.
    """
    batch_first, data = _data(node)
    weight, recurrent = node.required(1), node.required(2)
    shape = shape_of(recurrent)
    hidden, (directions, features, rows) = shape[1], shape_of(weight)
    r, o = _Operands.of(node, _described(node, LSTM, data, hidden, quantised=True), batch_first)
    if (directions, rows) != (r.directions, r.gates * hidden) or shape != (directions, hidden, rows):
        where = f"{hidden} units in {r.directions} directions"
        raise ValueError(f"weights of shapes {shape_of(weight)} and {shape} do not fit {where}")

    def of_columns(at: int) -> NDArray[Any]:
        """The scales or zero points of each column, [D, G * H]; there may be one for each direction."""
        given = _constant(node, at)
        return np.ascontiguousarray(np.broadcast_to(given.reshape(directions, -1), (directions, rows)))

    matrix = folded(
        node.emit,
        lambda w: w.transpose(1, 0, 2).reshape(features, directions * rows),
        lambda w: relax.op.reshape(node.emit(relax.op.permute_dims(w, [1, 0, 2])), [features, directions * rows]),
        weight,
    )
    columns = [relax.const(of_columns(at).reshape(-1)) for at in (8, 9)]
    flat = node.emit(relax.op.reshape(data, [r.steps * r.batch, features]))
    product = node.emit(real_product(node, Triple(*dynamically_quantised(node, flat)), Triple(matrix, *columns), None))
    gates = (directions, r.gates, hidden)
    kernel = _reshaped(node, recurrent, [directions, hidden, r.gates, hidden])
    operands = quantised_operands(node.emit, r, kernel, of_columns(10).reshape(gates), of_columns(11).reshape(gates))
    biases = LayerWeights(None, None, *_biases(node, r))
    found = layer_of_products(
        node.builder, node.builder.emit, r, product, biases, operands, o.initial, lengths=o.lengths,
        peepholes=o.peepholes,
    )  # fmt: skip
    return _results(node, found, batch_first)


def _constant(node: Node, at: int) -> NDArray[Any]:
    found = constant_of(node.required(at))
    if found is None:
        raise ValueError("scales or zero points that the network computes are not supported")
    return found


def _weights(node: Node, r: Recurrence) -> LayerWeights:
    """The node's weights and biases; ONNX has the gates in the kernel's order."""
    weight, recurrent = node.wide(node.required(1)), node.wide(node.required(2))
    directions, gates, hidden = r.directions, GATES[r.cell], r.hidden
    shapes = [shape_of(weight), shape_of(recurrent)]
    rows = gates * hidden
    if any(shape[:2] != (directions, rows) for shape in shapes):
        where = f"{hidden} units in {directions} directions"
        raise ValueError(f"weights of shapes {shapes[0]} and {shapes[1]} do not fit {where}")
    features = shapes[0][-1]
    return LayerWeights(
        _reshaped(node, weight, [directions, gates, hidden, features]),
        _reshaped(node, recurrent, [directions, gates, hidden, hidden]),
        *_biases(node, r),
    )


def _biases(node: Node, r: Recurrence) -> list[Any]:
    """The biases of the input's and of the state's products, [D, G, H]; none where there are none."""
    bias = node.operand(3)
    if bias is None:
        return []

    def part(tensor: Any, place: int) -> Any:
        axes, begin, end = [1], [place], [place + 1]
        sliced = partial(relax.op.strided_slice, axes=axes, begin=begin, end=end, strides=[1])
        return folded(node.emit, lambda t: t[:, place : place + 1], sliced, tensor)

    both = _reshaped(node, node.wide(bias), [r.directions, 2, r.gates, r.hidden])
    return [_reshaped(node, part(both, place), [r.directions, r.gates, r.hidden]) for place in range(2)]


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
    return node.index(lengths, [steps + 1], 0, negative=False)


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


OPERATORS = (
    OnnxOperator("DynamicQuantizeLSTM", _quantised_lstm, domain=MICROSOFT, types={0: _TYPES}),
    OnnxOperator("GRU", _recurrent(GRU), types={0: _TYPES}),
    OnnxOperator("LSTM", _recurrent(LSTM), types={0: _TYPES}),
    OnnxOperator("RNN", _recurrent(RNN), types={0: _TYPES}),
)
