"""Recurrent layers, and what looks like them: as operators of ONNX, and spelled out step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = ["ACTIVATIONS", "GATES", "Cell", "Layer"]

Array = NDArray[Any]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""The usual ones of each cell."""

_OTHER = {"Sigmoid": "HardSigmoid", "Tanh": "Softsign"}


class Layer(NamedTuple):
    """An operator of ONNX on `steps` of `batch` sequences, between a product before it and a sum after it.

    `given` says which optional operands there are: b(ias), l(engths), h, c (initial states), p(eepholes); `fixed` which
    operands are weights of the file: w, r and those of `given`.  `short` lengths differ, others are all `steps`.

    `twist` makes it something else: "clip", "coupled" (forget gate from input gate), "activation", or "last activation"
    (of one gate, in the last direction alone).
    """

    cell: str = "LSTM"
    direction: str = "forward"
    steps: int = 3
    batch: int = 2
    features: int = 3
    hidden: int = 5
    given: str = "b"
    fixed: str = "wrb"
    short: bool = True
    outputs: tuple[bool, ...] = (True, True, True)
    reset_after: bool = False
    lower_case: bool = False
    twist: str = ""

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def settled(self) -> Layer:
        """The nearest layer that there is."""
        layer = self
        if self.cell != "LSTM":
            given = self.given.replace("c", "").replace("p", "")
            twist = self.twist if self.twist != "coupled" else "clip"
            layer = self._replace(given=given, outputs=self.outputs[:2], twist=twist)
        if self.cell == "RNN":
            layer = layer._replace(lower_case=False)  # onnxruntime does not know it
        if not any(layer.outputs):
            layer = layer._replace(outputs=(True, *layer.outputs[1:]))
        return layer

    def model(self, seed: int = 1) -> tuple[ModelProto, dict[str, Array]]:
        """The network, and values for its inputs."""
        draw = np.random.default_rng(seed)

        def numbers(*shape: int) -> Array:
            return draw.standard_normal(shape).astype(np.float32) / 2

        d, rows, state = self.directions, GATES[self.cell] * self.hidden, (self.directions, self.batch, self.hidden)
        lengths = draw.integers(0, self.steps + 1, self.batch) if self.short else np.full(self.batch, self.steps)
        operands = {
            "w": numbers(d, rows, self.features), "r": numbers(d, rows, self.hidden), "b": numbers(d, 2 * rows),
            "l": lengths.astype(np.int32), "h": numbers(*state), "c": numbers(*state), "p": numbers(d, 3 * self.hidden),
        }  # fmt: skip
        present = {"w", "r", *self.given}
        names = [name if name in present else "" for name in ("wrblhcp" if self.cell == "LSTM" else "wrblh")]
        while not names[-1]:
            names.pop()
        results = [f"y{at}" if wanted else "" for at, wanted in enumerate(self.outputs)]
        nodes = [
            helper.make_node("MatMul", ["x", "before"], ["data"]),
            helper.make_node(self.cell, ["data", *names], results, "layer", **self._attributes()),
        ]
        shown = [name for name in results if name]
        nodes += [helper.make_node("Add", [name, "one"], [f"{name}_moved"]) for name in shown]
        weights = {"before": numbers(4, self.features), "one": np.ones(1, np.float32)}
        weights |= {name: operands[name] for name in present if name in self.fixed}
        feeds = {"x": numbers(self.steps, self.batch, 4)}
        feeds |= {name: operands[name] for name in sorted(present) if name not in weights}
        return _model(nodes, feeds, weights, [f"{name}_moved" for name in shown], 14), feeds

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {"hidden_size": self.hidden, "direction": self.direction}
        if self.reset_after and self.cell == "GRU":
            found["linear_before_reset"] = 1
        activations = list(ACTIVATIONS[self.cell] * self.directions)
        if self.twist == "activation":
            activations[0] = _OTHER[activations[0]]
        if self.twist == "last activation":
            activations[-1] = _OTHER[activations[-1]]
        if self.lower_case:
            activations = [name.lower() for name in activations]
        if self.lower_case or "activation" in self.twist:
            found["activations"] = activations
        if self.twist == "clip":
            found["clip"] = 0.25
        if self.twist == "coupled":
            found["input_forget"] = 1
        return found


class Cell(NamedTuple):
    """A cell spelled out for each step: a product for all gates, a split, and what is made of the gates.

    `twist`: "coupled", "peephole", "hard", "no output", "squared", "mixed" (states of two steps ago), or "reversed".
    A GRU knows but "hard", "mixed", "reversed".
    """

    cell: str = "LSTM"
    steps: int = 3
    batch: int = 2
    features: int = 3
    hidden: int = 5
    together: bool = True
    twist: str = ""

    def model(self, seed: int = 1) -> tuple[ModelProto, dict[str, Array]]:
        """The network, and values for its inputs."""
        return _Steps(self, seed).model()


class _Steps:
    """Writes the nodes of a cell's steps."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell, self._draw = cell, np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._weights: dict[str, Array] = {"one": np.ones(1, np.float32)}

    def _numbers(self, *shape: int) -> Array:
        return self._draw.standard_normal(shape).astype(np.float32) / 2

    def _weight(self, *shape: int) -> str:
        name = f"weight{len(self._weights)}"
        self._weights[name] = self._numbers(*shape)
        return name

    def _node(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        names = [f"{operator}{len(self._nodes)}_{at}" for at in range(results)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if results == 1 else names

    def model(self) -> tuple[ModelProto, dict[str, Array]]:
        cell = self._cell
        gates = GATES[cell.cell]
        feeds = {
            "x": self._numbers(cell.steps, cell.batch, cell.features), "h": self._numbers(cell.batch, cell.hidden),
            "c": self._numbers(cell.batch, cell.hidden),
        }  # fmt: skip
        weights = self._weight(cell.features, gates * cell.hidden), self._weight(cell.hidden, gates * cell.hidden)
        bias = self._weight(gates * cell.hidden)
        parts = self._node("Split", "x", results=cell.steps, axis=0, num_outputs=cell.steps) if cell.steps > 1 else "x"
        parts = [parts] if cell.steps == 1 else list(parts)
        h, c, states = "h", "c", ["h"]
        for part in parts[::-1] if cell.twist == "reversed" else parts:
            self._weights["size"] = np.array([cell.batch, cell.features])
            row = self._node("Reshape", part, "size")
            read = states[-2] if cell.twist == "mixed" and len(states) > 1 else h
            step = self._lstm if cell.cell == "LSTM" else self._gru
            h, c = step(row, read, c, weights, bias)
            states.append(h)
        rows = [self._node("Unsqueeze", state, self._axes()) for state in states[1:]]
        y = self._node("Concat", *rows, axis=0)
        results = [self._node("Neg", y), self._node("Neg", h), *([self._node("Neg", c)] if cell.cell == "LSTM" else [])]
        if cell.cell != "LSTM":
            del feeds["c"]
        return _model(self._nodes, feeds, self._weights, results, 18), feeds

    def _axes(self) -> str:
        self._weights["axes"] = np.array([0])
        return "axes"

    def _products(self, row: str, h: str, weights: tuple[str, str], bias: str) -> tuple[list[str], list[str]]:
        """The gates' products of the input and of the state."""
        gates = GATES[self._cell.cell]
        ours = self._node("Add", self._node("MatMul", row, weights[0]), bias)
        theirs = self._node("MatMul", h, weights[1])
        return self._split(ours, gates), self._split(theirs, gates)

    def _split(self, tensor: str, parts: int) -> list[str]:
        found = self._node("Split", tensor, results=parts, axis=1, num_outputs=parts)
        return [found] if parts == 1 else list(found)

    def _lstm(self, row: str, h: str, c: str, weights: tuple[str, str], bias: str) -> tuple[str, str]:
        twist = self._cell.twist
        if self._cell.together:
            total = self._node("Add", self._node("Add", self._node("MatMul", row, weights[0]), bias),
                               self._node("MatMul", h, weights[1]))  # fmt: skip
            sums = list(self._node("Split", total, results=4, axis=1, num_outputs=4))
        else:
            ours, theirs = self._products(row, h, weights, bias)
            sums = [self._node("Add", *pair) for pair in zip(ours, theirs, strict=True)]
        if twist == "peephole":
            sums[0] = self._node("Add", sums[0], self._node("Mul", c, self._weight(self._cell.hidden)))
        soft = "HardSigmoid" if twist == "hard" else "Sigmoid"
        entered, left, kept = (self._node(soft, sums[at]) for at in (0, 1, 2))
        if twist == "coupled":
            kept = self._node("Sub", "one", entered)
        new = self._node("Mul", entered, self._node("Tanh", sums[3]))
        c = self._node("Add", self._node("Mul", kept, c), new)
        shown = self._node("Mul", c, c) if twist == "squared" else self._node("Tanh", c)
        return (shown if twist == "no output" else self._node("Mul", left, shown)), c

    def _gru(self, row: str, h: str, c: str, weights: tuple[str, str], bias: str) -> tuple[str, str]:
        ours, theirs = self._products(row, h, weights, bias)
        soft = "HardSigmoid" if self._cell.twist == "hard" else "Sigmoid"
        update = self._node(soft, self._node("Add", ours[0], theirs[0]))
        reset = self._node(soft, self._node("Add", ours[1], theirs[1]))
        new = self._node("Tanh", self._node("Add", ours[2], self._node("Mul", reset, theirs[2])))
        first = self._node("Mul", self._node("Sub", "one", update), new)
        return self._node("Add", first, self._node("Mul", update, h)), c


def _model(
    nodes: list[NodeProto], feeds: dict[str, Array], weights: dict[str, Array], results: list[str], opset: int
) -> ModelProto:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "recurrent", ports, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
