"""Runs single nodes with constant inputs, and whole graphs, in onnxruntime without optimisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper

from kintune.models.integer_division import without_overflow
from kintune.models.onnx_nodes import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["LOG_FATAL", "RANDOM", "evaluate", "open_session"]

LOG_FATAL = 4
"""onnxruntime's log level at which it writes fatal errors alone."""

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose results are random."""

_NUMERIC = "biuf"

_BITS = "tensor(float8"
"""The beginning of types whose bits onnxruntime returns as integers."""

_IGNORE_NAN = frozenset({"ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"})
"""Operators that ignore most NaN in onnxruntime, and must not; beside padding, the maximum is -inf there, too."""


def evaluate(node: NodeProto, values: Sequence[NDArray[Any] | None], opset: int) -> list[NDArray[Any]] | None:
    """Returns the outputs that onnxruntime computes for a node with these inputs, without optimisation.

    An input that is None is left out.  An output without a name is an empty array in the list.

    Returns None for operators whose results are random, where inputs or outputs are no tensors of numbers, where
    onnxruntime ignores a NaN or returns bits, and where it fails.
    """
    if node.op_type in RANDOM | {"Dropout"} or any(
        value is not None and value.dtype.kind not in _NUMERIC for value in values
    ):
        return None
    if node.op_type in _IGNORE_NAN and values[0] is not None and not np.isfinite(values[0]).all():
        return None
    values = without_overflow(node, values)
    try:
        session = open_session(_model(node, values, opset))
        feeds = {name: value for name, value in zip(node.input, values, strict=True) if value is not None}
        if any(each.type.startswith(_BITS) for each in session.get_outputs()):
            return None
        names = [name for name in node.output if name]
        computed = dict(zip(names, session.run(names, feeds), strict=True))
    except Exception:  # onnxruntime has its own exception types
        return None
    results = [computed.get(name, np.empty(0, np.float32)) for name in node.output]
    if not all(isinstance(result, np.ndarray) and result.dtype.kind in _NUMERIC for result in results):
        return None
    return results


def _model(node: NodeProto, values: Sequence[NDArray[Any] | None], opset: int) -> ModelProto:
    inputs = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(node.input, values, strict=True)
        if value is not None
    }
    graph = GraphProto(name="constant")
    graph.node.append(node)
    graph.input.extend(inputs.values())
    for name in node.output:
        if name:
            graph.output.append(helper.make_value_info(name, TypeProto()))
    opsets = [helper.make_opsetid("", opset)]
    if node.domain not in DEFAULT_DOMAINS:
        opsets.append(helper.make_opsetid(node.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def open_session(model: ModelProto) -> onnxruntime.InferenceSession:
    """A session on one CPU thread that does not optimise the graph, and logs fatal errors alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = LOG_FATAL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
