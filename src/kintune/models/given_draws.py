"""Replaces the nodes of an ONNX graph that draw random numbers by ones that always give the same numbers.

Two graphs of one model then draw the same numbers, so that their outputs can be compared.  The numbers depend on the
name of a node's output and on the shape alone: number i is the fraction of 43758.5453 sin(12.9898 i + s), which is
uniform enough; normal ones follow by the transform of Box and Muller (1958).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.models.evaluation import RANDOM
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes

__all__ = ["draws_numbers", "give_draws"]

_OLDEST = 11  # the operator set that has Range
_CAST_LIKE = 15  # the operator set that has CastLike
_DROPOUT = "Dropout"


def draws_numbers(model: ModelProto) -> bool:
    """Whether a node at any depth draws random numbers."""
    return any(map(_draws, nodes(model)))


def give_draws(model: ModelProto) -> bool:
    """Replaces the nodes that draw numbers, at any depth, in place; returns whether there were any.

    None is replaced in local functions, and none of a model of an operator set before 11.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), 0)
    if opset < _OLDEST:
        return False
    return _replace(model.graph, opset)


def _replace(graph: GraphProto, opset: int) -> bool:
    kept: list[NodeProto] = []
    found = False
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found |= _replace(attribute.g, opset)
        if _draws(node):
            found = True
            kept.extend(_Draw(node, opset).nodes())
        else:
            kept.append(node)
    if found:
        del graph.node[:]
        graph.node.extend(kept)
    return found


def _draws(node: NodeProto) -> bool:
    if node.domain not in DEFAULT_DOMAINS:
        return False
    return node.op_type in RANDOM or (node.op_type == _DROPOUT and len(node.input) > 2 and bool(node.input[2]))


class _Draw:
    """The nodes in place of one that draws numbers."""

    def __init__(self, node: NodeProto, opset: int) -> None:
        self._node = node
        self._attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        self._has_cast_like = opset >= _CAST_LIKE
        self._made: list[NodeProto] = []

    def nodes(self) -> Iterator[NodeProto]:
        """The nodes, which write the outputs of the replaced one."""
        kinds: dict[str, Callable[[], str]] = {
            "RandomNormal": lambda: self._normal(self._shape()),
            "RandomNormalLike": lambda: self._normal(self._shape_of_input()),
            "RandomUniform": lambda: self._between(self._shape()),
            "RandomUniformLike": lambda: self._between(self._shape_of_input()),
            "Bernoulli": self._bernoulli,
            "Multinomial": self._multinomial,
            _DROPOUT: self._dropout,
        }
        self._typed(kinds[self._node.op_type](), self._node.output[0])
        yield from self._made

    def _add(self, operator: str, *inputs: str, output: str = "", **attributes: object) -> str:
        name = output or f"{self._node.output[0]}/given/{len(self._made)}"
        self._made.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _constant(self, value: object, dtype: type = np.float64) -> str:
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self._add("Constant", value=tensor)

    def _shape(self) -> str:
        return self._constant(self._attributes["shape"], np.int64)

    def _shape_of_input(self) -> str:
        return self._add("Shape", self._node.input[0])

    def _uniform(self, shape: str, number: int = 0) -> str:
        """Doubles of this shape in (0, 1)."""
        size = self._add("ReduceProd", shape, keepdims=0)
        ones = self._constant(0, np.int64), self._constant(1, np.int64)
        places = self._add("Cast", self._add("Range", ones[0], size, ones[1]), to=TensorProto.DOUBLE)
        phase = zlib.crc32(f"{self._node.output[0]} {number}".encode()) % 1000 / 7
        angle = self._add("Add", self._add("Mul", places, self._constant(12.9898)), self._constant(phase))
        large = self._add("Mul", self._add("Sin", angle), self._constant(43758.5453))
        above = self._add("Add", large, self._constant(43760.0))
        whole = self._add("Cast", self._add("Cast", above, to=TensorProto.INT64), to=TensorProto.DOUBLE)
        share = self._add("Mul", self._add("Sub", above, whole), self._constant(1 - 1e-9))
        return self._add("Reshape", self._add("Add", share, self._constant(5e-10)), shape)

    def _between(self, shape: str) -> str:
        low, high = self._attributes.get("low", 0.0), self._attributes.get("high", 1.0)
        return self._scaled(self._uniform(shape), high - low, low)

    def _normal(self, shape: str) -> str:
        logarithm = self._add("Log", self._uniform(shape))
        radius = self._add("Sqrt", self._add("Mul", logarithm, self._constant(-2.0)))
        turn = self._add("Sin", self._scaled(self._uniform(shape, 1), 2 * math.pi, 0.0))
        drawn = self._add("Mul", radius, turn)
        return self._scaled(drawn, self._attributes.get("scale", 1.0), self._attributes.get("mean", 0.0))

    def _scaled(self, drawn: str, factor: float, offset: float) -> str:
        return self._add("Add", self._add("Mul", drawn, self._constant(factor)), self._constant(offset))

    def _bernoulli(self) -> str:
        chance = self._add("Cast", self._node.input[0], to=TensorProto.DOUBLE)
        return self._add("Less", self._uniform(self._shape_of_input()), chance)

    def _multinomial(self) -> str:
        """The first class whose cumulative chance reaches a drawn number, of each sample."""
        weights = self._add("Cast", self._node.input[0], to=TensorProto.DOUBLE)
        chances = self._add("Softmax", weights, axis=1)
        reached = self._add("CumSum", chances, self._constant(1, np.int64))
        rows = self._add("Reshape", reached, self._constant([0, 1, -1], np.int64))
        count = self._attributes.get("sample_size", 1)
        first = self._add("Gather", self._shape_of_input(), self._constant([0], np.int64), axis=0)
        drawn = self._uniform(self._add("Concat", first, self._constant([count], np.int64), axis=0))
        each = self._add("Reshape", drawn, self._constant([0, -1, 1], np.int64))
        is_reached = self._add("Cast", self._add("Less", each, rows), to=TensorProto.FLOAT)
        return self._add("ArgMax", is_reached, axis=2, keepdims=0)

    def _dropout(self) -> str:
        """The values, those that are kept divided by the share that is kept; as they are where nothing is trained."""
        data, ratio, training = self._node.input[:3]
        share = self._add("Cast", ratio, to=TensorProto.DOUBLE) if ratio else self._constant(0.5)
        keeps = self._add("Not", self._add("Less", self._uniform(self._shape_of_input()), share))
        plain = self._add("Cast", data, to=TensorProto.DOUBLE)
        grown = self._add("Div", plain, self._add("Sub", self._constant(1.0), share))
        dropped = self._add("Where", keeps, grown, self._constant(0.0))
        if len(self._node.output) > 1 and self._node.output[1]:
            self._add("Or", keeps, self._add("Not", training), output=self._node.output[1])
        return self._add("Where", training, dropped, plain)

    def _typed(self, drawn: str, output: str) -> None:
        """Write what was drawn as the node's output, in the type that it has."""
        kind = self._node.op_type
        dtype = self._attributes.get("dtype", TensorProto.INT32 if kind == "Multinomial" else 0)
        if not dtype and self._node.input and self._has_cast_like:
            self._add("CastLike", drawn, self._node.input[0], output=output)
        else:
            self._add("Cast", drawn, to=dtype or TensorProto.FLOAT, output=output)
