"""A model in which the quantisation of each tensor can be switched on and off; one session measures any set of layers.

It computes in fp32 what the quantised model computes: the values of a tensor that is switched on are quantised and
dequantised.  A tensor is switched on if any layer that reads it is quantised, as in the quantiser's own result.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.quantisation.quantiser import Feeds, open_on, run

__all__ = ["SwitchedModel"]

_SWITCHES = "kintune switches"


class SwitchedModel:
    """A model with a switch for each tensor that its layers read."""

    def __init__(self, plain: ModelProto, quantised: ModelProto, layers: Collection[str], threads: int) -> None:
        """`quantised` is the same model with all of these layers (names of nodes) quantised."""
        self._readers: list[frozenset[str]] = []  # for each switch, the layers that turn it on
        self._session = open_on(self._switched(plain, quantised, frozenset(layers)), threads, exact=True)

    def run(self, layers: Collection[str], feeds: Feeds) -> list[Any]:
        """Return the outputs with these layers quantised, in the model's order."""
        on = np.array([not readers.isdisjoint(layers) for readers in self._readers], bool)
        return run(self._session, {**feeds, _SWITCHES: on})

    def _switched(self, plain: ModelProto, quantised: ModelProto, layers: frozenset[str]) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(quantised)
        before = _original_names(plain, quantised)
        readers: dict[str, set[str]] = {}
        for node in plain.graph.node:
            for name in node.input if node.name in layers else ():
                readers.setdefault(name, set()).add(node.name)
        changed: list[NodeProto] = []
        places: list[TensorProto] = []
        for node in model.graph.node:
            changed.append(node)
            original = before.get(node.output[0]) if node.op_type == "DequantizeLinear" else None
            if original is None:
                continue
            number, result = len(self._readers), node.output[0]
            self._readers.append(frozenset(readers.get(original.name, ())))
            place, chosen, rounded = (f"{_SWITCHES} {number}{part}" for part in ("", " is on", " rounded"))
            node.output[0] = rounded
            places.append(numpy_helper.from_array(np.array(number, np.int64), place))
            changed.append(helper.make_node("Gather", [_SWITCHES, place], [chosen], f"{chosen} node"))
            changed.append(helper.make_node("Where", [chosen, rounded, original.now], [result], f"{place} node"))
        del model.graph.node[:]
        model.graph.node.extend(changed)
        known = {tensor.name for tensor in model.graph.initializer}
        model.graph.initializer.extend(places)
        for tensor in plain.graph.initializer:
            if tensor.name not in known:
                weight = model.graph.initializer.add()
                weight.CopyFrom(tensor)
                weight.name = before[tensor.name].now if tensor.name in before else tensor.name
        shape = [len(self._readers)]
        model.graph.input.append(helper.make_tensor_value_info(_SWITCHES, TensorProto.BOOL, shape))
        return model


class _Original(NamedTuple):
    """The name of a tensor in the plain model, and its name in the quantised model before it is rounded."""

    name: str
    now: str


def _original_names(plain: ModelProto, quantised: ModelProto) -> dict[str, _Original]:
    """Maps the name of each rounded tensor of the quantised model to the tensor of the plain model that it replaces.

    Usually a layer reads a tensor of a new name.  A layer's input that is also an output of the graph keeps its name
    when it is rounded, and its producer writes to a new name.  A rounded bias keeps its name, too, and its fp32 values
    get a new one here.
    """
    found: dict[str, _Original] = {}
    made = {node.output[0] for node in quantised.graph.node if node.op_type == "DequantizeLinear"}
    for tensor in plain.graph.initializer:
        if tensor.name in made:
            found[tensor.name] = _Original(tensor.name, f"{tensor.name} unrounded")
    nodes = {node.name: node for node in plain.graph.node}
    for node in quantised.graph.node:
        original = nodes.get(node.name)
        if original is None:
            continue
        for before, now in zip(original.input, node.input, strict=True):
            if before != now:
                found[now] = _Original(before, before)
        for before, now in zip(original.output, node.output, strict=True):
            if before != now:
                found[before] = _Original(before, now)
    return found
