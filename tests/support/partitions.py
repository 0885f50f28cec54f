"""ONNX graphs to be partitioned, and host graphs that onnxruntime can run without Kintune's operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper, parser

from kintune.core.hybrid import Region
from kintune.models.evaluation import open_session
from kintune.models.onnx import OnnxModel
from kintune.models.onnx_nodes import describe_node
from kintune.partition.composition import extract, region_operator
from kintune.partition.single_node import SingleNode
from kintune.runtime.hybrid_package import operator_domain

__all__ = [
    "DIGEST",
    "Refusing",
    "computed",
    "drawn",
    "onnx_model",
    "parse",
    "values_of",
    "weight_names",
    "with_functions",
]

DIGEST = "0123456789abcdef0123456789abcdef"
"""Of every model made here."""

Arrays = dict[str, NDArray[Any]]


def parse(text: str, *domains: str, opset: int = 17) -> ModelProto:
    """A model from ONNX's own text, without its head; onnxruntime's own operators, and these domains, are there too."""
    more = "".join(f', "{domain}": 1' for domain in ("com.microsoft", *domains))
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}{more}]>\n{text}')


def onnx_model(proto: ModelProto, weights: Mapping[str, NDArray[Any]] | None = None) -> OnnxModel:
    """What is read from a file with this graph; `weights` are those that stay out of it."""
    weights = dict(weights or {})
    inputs = {
        value.name: tuple(extent.dim_value for extent in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
        if value.name not in weights
    }
    return OnnxModel(Path("m.onnx"), proto, inputs, weights, DIGEST, proto.opset_import[0].version, {})


class Refusing:
    """A compiler that can do all but these operators, or these nodes as messages name them.

    `asked` has the nodes that it was asked for.
    """

    def __init__(self, *refused: str) -> None:
        self._refused = refused
        self.asked: list[str] = []

    def __call__(self, alone: SingleNode) -> str:
        (node,) = alone.model.graph.node
        self.asked.append(describe_node(node))
        refused = node.op_type in self._refused or describe_node(node) in self._refused
        return f"operator {node.op_type} is not supported" if refused else ""


def with_functions(
    host: ModelProto, marked: ModelProto, regions: Sequence[Region], kept: Collection[int]
) -> ModelProto:
    """A host graph in which each operator of a region is a function: the model of that region alone."""
    model = ModelProto()
    model.CopyFrom(host)
    for number, region in enumerate(kept):
        alone = extract(marked, regions[region], region).graph
        constants = [helper.make_node("Constant", [], [t.name], value=t) for t in alone.initializer]
        function = helper.make_function(
            operator_domain(DIGEST),
            region_operator(number),
            [value.name for value in alone.input],
            [value.name for value in alone.output],
            [*constants, *alone.node],
            list(marked.opset_import),
        )
        model.functions.append(function)
    return model


def computed(model: ModelProto, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
    """What onnxruntime computes of a model, without optimisation."""
    session = open_session(model)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def drawn(proto: ModelProto, seed: int = 1) -> Arrays:
    """Inputs for a model, normally distributed."""
    draw = np.random.default_rng(seed)
    weights = {tensor.name for tensor in proto.graph.initializer}
    return {
        value.name: draw.standard_normal([e.dim_value for e in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in proto.graph.input
        if value.name not in weights
    }


def weight_names(model: ModelProto) -> list[str]:
    """The weights of the main graph."""
    return [tensor.name for tensor in model.graph.initializer]


def values_of(model: ModelProto, name: str) -> NDArray[Any]:
    """The values of a weight."""
    return next(numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)
