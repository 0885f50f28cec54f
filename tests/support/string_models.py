"""Models with strings, sequences and maps, as exporters of classical pipelines write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LABELS", "write_classifier", "write_text_model"]

LABELS = ("bird", "cat", "dog")
_ML = "ai.onnx.ml"
_WIDTH = 64
_CHAIN = ("Sigmoid", "Relu", "Neg", "Elu", "Sigmoid", "Relu", "Neg", "Sigmoid")


def write_classifier(path: Path) -> None:
    """x [64, 64] -> the label of each row as a string, and a sequence of maps from labels to probabilities.

    Between the two are elementwise operators that may be a region.
    """
    draw = np.random.default_rng(0)
    nodes = [
        *_chain("x", "h"),
        helper.make_node("MatMul", ["h", "w"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
    ]
    nodes.append(helper.make_node("ArgMax", ["p"], ["best"], axis=1, keepdims=0))
    nodes.append(
        helper.make_node(
            "LabelEncoder", ["best"], ["label"], domain=_ML, keys_int64s=range(len(LABELS)), values_strings=LABELS
        )
    )
    nodes.append(helper.make_node("ZipMap", ["p"], ["probabilities"], domain=_ML, classlabels_strings=LABELS))
    of_a_row = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, [_WIDTH]),
        helper.make_value_info("probabilities", helper.make_sequence_type_proto(of_a_row)),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [_WIDTH, _WIDTH])]
    weights = {"w": draw.standard_normal((_WIDTH, len(LABELS))).astype(np.float32)}
    _save(path, nodes, inputs, outputs, weights)


def write_text_model(path: Path) -> None:
    """words [64] strings, x [64, 64] -> numbers [64, 64], the words in capital letters [64].

    A weight of strings replaces some words, and the others are numbered.
    """
    nodes = [
        helper.make_node("Concat", ["words", "more"], ["all"], axis=0),
        helper.make_node("StringNormalizer", ["all"], ["capital"], case_change_action="UPPER", locale="C"),
        helper.make_node(
            *("LabelEncoder", ["all"], ["number"]),
            domain=_ML, keys_strings=["a", "the", "red", "one"], values_floats=[1.0, 2.0, 3.0, 4.0], default_float=0.5,
        ),
        helper.make_node("Unsqueeze", ["number", "last"], ["column"]),
        helper.make_node("Mul", ["x", "column"], ["z"]),
        *_chain("z", "y"),
    ]  # fmt: skip
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [_WIDTH, _WIDTH]),
        helper.make_tensor_value_info("capital", TensorProto.STRING, [_WIDTH]),
    ]
    inputs = [
        helper.make_tensor_value_info("words", TensorProto.STRING, [_WIDTH - 1]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [_WIDTH, _WIDTH]),
    ]
    _save(path, nodes, inputs, outputs, {"more": np.array(["the"], object), "last": np.array([1])})


def _chain(source: str, target: str) -> list[onnx.NodeProto]:
    """Operators on numbers, enough of them for a region."""
    names = [source, *(f"{target}{number}" for number in range(len(_CHAIN) - 1)), target]
    return [
        helper.make_node(operator, [before], [after])
        for operator, before, after in zip(_CHAIN, names[:-1], names[1:], strict=True)
    ]


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray],
) -> None:
    graph = helper.make_graph(
        nodes, "pipeline", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in weights.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_ML, 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
