"""Recurrent layers of PyTorch; the loop over time is in one kernel for each layer.

`prepare` keeps those as operators for which `is_kept` is True; PyTorch unrolls the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from tvm import relax

from kintune.models.expressions import constant_of, dtype_of, shape_of
from kintune.models.recurrence import BIDIRECTIONAL, FORWARD, GRU, LSTM, RNN, Recurrence
from kintune.models.recurrent_layer import LayerWeights, recurrent_layer
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS", "is_kept"]


class _Cell(NamedTuple):
    """A cell: its name, PyTorch's number of each gate in the order of the kernel, and whether it has ReLU."""

    name: str
    gates: tuple[int, ...]
    relu: bool = False


_CELLS = {
    "lstm.input": _Cell(LSTM, (0, 3, 1, 2)),
    "gru.input": _Cell(GRU, (1, 0, 2)),
    "rnn_tanh.input": _Cell(RNN, (0,)),
    "rnn_relu.input": _Cell(RNN, (0,), relu=True),
}


def is_kept(node: torch.fx.Node) -> bool:
    """Whether a node is a recurrent layer that can be converted.

    It must have no projections and no dropout in training, and elements of float32 or half precision.
    """
    name = str(getattr(node.target, "__name__", ""))
    if node.op != "call_function" or name not in _CELLS:
        return False
    data, _, weights, has_biases, layers, dropout, train, bidirectional = node.args[:8]
    known = [value.meta.get("val") for value in (data, *weights)]
    if not all(isinstance(value, torch.Tensor) and value.dtype in _TYPES for value in known):
        return False
    expected = (4 if has_biases else 2) * int(layers) * (2 if bidirectional else 1)
    return len(weights) == expected and not (train and dropout)


_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def _convert(cell: _Cell) -> Converter:
    def convert(t: Translation, a: SimpleNamespace) -> Any:
        states = list(a.hx) if cell.name == LSTM else [a.hx]
        directions = 2 if a.bidirectional else 1
        data = t.wide(a.input)
        if a.batch_first:
            data = t.emit(relax.op.permute_dims(data, [1, 0, 2]))
        each = (4 if a.has_biases else 2) * directions
        last: list[list[Expression]] = []
        for layer in range(a.num_layers):
            steps, batch, _ = shape_of(data)
            weights = _weights(t, a.params[layer * each : (layer + 1) * each], cell, directions)
            recurrence = Recurrence(
                cell.name,
                BIDIRECTIONAL if a.bidirectional else FORWARD,
                steps,
                batch,
                shape_of(weights.recurrent)[-1],
                reset_after=cell.name == GRU,
                activations=("relu",) * directions if cell.relu else (),
            )
            first = layer * directions
            initial = [t.slice(t.wide(state), 0, first, first + directions) for state in states]
            y, *ends = recurrent_layer(t.builder, t.emit, recurrence, data, weights, *initial)
            last.append(ends)
            if directions == 2:
                y = t.emit(relax.op.permute_dims(y, [0, 2, 1, 3]))
            data = t.reshape(y, [steps, batch, directions * recurrence.hidden])
        if a.batch_first:
            data = t.emit(relax.op.permute_dims(data, [1, 0, 2]))
        results = [data, *(t.concat(ends, 0) for ends in zip(*last, strict=True))]
        return tuple(t.cast(result, dtype_of(a.input)) for result in results)

    return convert


def _weights(t: Translation, given: Sequence[Expression], cell: _Cell, directions: int) -> LayerWeights:
    """The weights of one layer, gates in the kernel's order."""
    each = len(given) // directions
    return LayerWeights(*(_stacked(t, given[kind::each], cell) for kind in range(each)))


def _stacked(t: Translation, given: Sequence[Expression], cell: _Cell) -> Expression:
    """One kind of weight for all directions, [D, G, H, ...], with gates in the kernel's order."""
    gates = len(cell.gates)
    arrays = [array for weight in given if (array := constant_of(weight)) is not None]
    if len(arrays) == len(given):
        apart = [np.asarray(a, np.float32).reshape(gates, a.shape[0] // gates, *a.shape[1:]) for a in arrays]
        return relax.const(np.ascontiguousarray(np.stack(apart)[:, list(cell.gates)]))
    computed = []
    for weight in given:  # the network computes some of them, for example by a weight norm
        rows, *rest = shape_of(weight)
        split = t.reshape(t.wide(weight), [1, gates, rows // gates, *rest])
        computed.append(t.concat([t.slice(split, 1, gate, gate + 1) for gate in cell.gates], 1))
    return t.concat(computed, 0)


CONVERTERS: dict[str, Converter] = {name: _convert(cell) for name, cell in _CELLS.items()}
"""Operator of aten -> its converter."""
