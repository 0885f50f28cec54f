"""Converts a recurrent layer, for both importers: one matrix product for all steps, then a kernel with the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from kintune.models.expressions import constant_of, dtype_of, shape_of
from kintune.models.recurrence import LSTM, Recurrence
from kintune.models.recurrent_kernel import call_recurrence

__all__ = ["LayerWeights", "folded", "layer_of_products", "quantised_operands", "recurrent_layer"]

_Emit = Callable[[relax.Expr], Any]


class LayerWeights(NamedTuple):
    """The weights of a layer: D directions, G gates in the order of `kintune.models.recurrence.GATES`, H units.

    `input` [D, G, H, I] multiplies the I features, `recurrent` [D, G, H, H] the units' states.  `input_bias` and
    `recurrent_bias` [D, G, H] are added to these products; None stands for zeros.
    """

    input: Any
    recurrent: Any
    input_bias: Any = None
    recurrent_bias: Any = None


def recurrent_layer(
    builder: relax.BlockBuilder,
    emit: _Emit,
    recurrence: Recurrence,
    data: Any,
    weights: LayerWeights,
    initial_h: Any = None,
    initial_c: Any = None,
    lengths: Any = None,
    peepholes: Any = None,
) -> list[Any]:
    """Convert a layer on `data` [S, B, I], all of float32; returns `y`, `last_h`, and for an LSTM `last_c`.

    Initial states [D, B, H] that are None are zeros.  `lengths` int32 [B] and `peepholes` [D, 3, H] must be given if
    the recurrence has them.  `emit` binds an expression to a variable.  See `Recurrence` for the shapes of the results.

    Raises:
        ValueError: when a shape does not fit the others.
    """
    r = recurrence
    steps, batch, features = shape_of(data)
    width = r.directions * r.gates * r.hidden
    matrix = folded(emit, lambda w: w.reshape(width, features).T, lambda w: _transposed(emit, w, width), weights.input)
    rows = emit(relax.op.reshape(data, [steps * batch, features]))
    product = emit(relax.op.matmul(rows, matrix))
    recurrent = [_recurrent(emit, r, weights.recurrent)]
    return layer_of_products(
        builder, emit, r, product, weights, recurrent, (initial_h, initial_c), lengths=lengths, peepholes=peepholes
    )


def layer_of_products(
    builder: relax.BlockBuilder,
    emit: _Emit,
    recurrence: Recurrence,
    product: Any,
    weights: LayerWeights,
    recurrent: Sequence[Any],
    initial: tuple[Any, Any],
    *,
    lengths: Any = None,
    peepholes: Any = None,
) -> list[Any]:
    """The layer whose input was multiplied by the weights already: `product` is [S * B, D * G * H], without biases.

    Of `weights`, only the biases are used; `recurrent` are the kernel's operands of recurrent weights.  `initial` are
    the states h and c.  The rest is as in `recurrent_layer`.

    Raises:
        ValueError: when a shape does not fit the others.
    """
    r, batch = recurrence, recurrence.batch
    initial_h, initial_c = initial
    if (bias := _bias(emit, r, weights)) is not None:
        product = emit(relax.op.add(product, bias))
    projected = emit(relax.op.reshape(product, [r.steps, batch, r.directions, r.gates, r.hidden]))
    operands = [projected, *recurrent]
    if r.reset_after:
        operands.append(_hidden_bias(emit, r, weights.recurrent_bias))
    zeros = relax.const(np.zeros((r.directions, batch, r.hidden), np.float32))
    operands.append(zeros if initial_h is None else initial_h)
    if r.cell == LSTM:
        operands.append(zeros if initial_c is None else initial_c)
    if r.peepholes:
        operands.append(peepholes)
    if r.lengths:
        operands.append(lengths)
    return call_recurrence(builder, emit, r, operands)


def quantised_operands(emit: _Emit, r: Recurrence, weight: Any, scales: NDArray[Any], zeros: NDArray[Any]) -> list[Any]:
    """The kernel's operands of recurrent weights [D, H, G, H] of int8 or uint8, from unit to gate of unit.

    `scales` and `zeros` [D, G, H] are those of each gate of each unit.  See `Recurrence` for the results.
    """
    moved = 128 if dtype_of(weight) == "uint8" else 0
    last = r.padded - r.hidden

    def cast(tensor: Any, dtype: str) -> Any:
        return emit(relax.op.astype(tensor, dtype))

    signed = folded(
        emit,
        lambda w: (w.astype(np.int16) - moved).astype(np.int8),
        lambda w: relax.op.astype(emit(relax.op.subtract(cast(w, "int16"), relax.const(moved, "int16"))), "int8"),
        weight,
    )
    integers = folded(
        emit,
        lambda w: np.pad(w, [*[(0, 0)] * 3, (0, last)]),
        lambda w: relax.op.nn.pad(w, [0] * 7 + [last], "constant", 0.0),
        signed,
    )
    points = np.pad(zeros.astype(np.int32) - moved, [(0, 0), (0, 0), (0, last)])
    offsets = folded(
        emit,
        lambda w, p: w.sum(axis=1, dtype=np.int32) - r.hidden * p,
        lambda w, p: relax.op.subtract(
            emit(relax.op.sum(cast(w, "int32"), axis=1)), emit(relax.op.multiply(relax.const(r.hidden, "int32"), p))
        ),
        integers,
        relax.const(points),
    )
    wide = np.pad(scales.astype(np.float32), [(0, 0), (0, 0), (0, last)])
    return [integers, relax.const(wide), offsets, relax.const(points)]


def folded(emit: _Emit, on_arrays: Callable[..., NDArray[Any]], on_tensors: Callable[..., Any], *operands: Any) -> Any:
    """The constant that `on_arrays` computes if all operands are constants; else the emitted result of `on_tensors`."""
    arrays = [constant_of(operand) for operand in operands]
    if any(array is None for array in arrays):
        return emit(on_tensors(*operands))
    return relax.const(np.ascontiguousarray(on_arrays(*arrays)))


def _transposed(emit: _Emit, weight: Any, width: int) -> Any:
    return relax.op.permute_dims(emit(relax.op.reshape(weight, [width, shape_of(weight)[-1]])))


def _recurrent(emit: _Emit, r: Recurrence, weight: Any) -> Any:
    """Transposes recurrent weights [D, G, to unit, from unit] to the kernel's [D, from unit, G, to unit], and pads."""
    widths = [0] * 7 + [r.padded - r.hidden]
    return folded(
        emit,
        lambda w: np.pad(w.transpose(0, 3, 1, 2), np.reshape(widths, (4, 2))),
        lambda w: relax.op.nn.pad(emit(relax.op.permute_dims(w, [0, 3, 1, 2])), widths, "constant", 0.0),
        weight,
    )


def _bias(emit: _Emit, r: Recurrence, weights: LayerWeights) -> Any:
    """The bias of the input's product: both biases, but with `reset_after` not the hidden gate's recurrent one."""
    input_bias, recurrent_bias = weights.input_bias, weights.recurrent_bias
    width = r.directions * r.gates * r.hidden
    if recurrent_bias is not None and r.reset_after:
        allowed = np.ones((1, r.gates, 1), np.float32)
        allowed[0, -1] = 0
        mask = relax.const(allowed)
        recurrent_bias = folded(emit, np.multiply, relax.op.multiply, recurrent_bias, mask)
    given = [bias for bias in (input_bias, recurrent_bias) if bias is not None]
    if not given:
        return None
    total = given[0] if len(given) == 1 else folded(emit, np.add, relax.op.add, *given)
    return folded(emit, lambda b: b.reshape(width), lambda b: relax.op.reshape(b, [width]), total)


def _hidden_bias(emit: _Emit, r: Recurrence, bias: Any) -> Any:
    """The recurrent bias of the last gate, [D, H]."""
    shape = (r.directions, r.hidden)
    if bias is None:
        return relax.const(np.zeros(shape, np.float32))
    last = r.gates - 1
    return folded(
        emit,
        lambda b: b[:, last],
        lambda b: relax.op.reshape(emit(relax.op.strided_slice(b, [1], [last], [last + 1], [1])), list(shape)),
        bias,
    )
