"""The float32 form of an ONNX graph that computes in bfloat16, for runtimes that have no kernels for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, numpy_helper

from kintune.models.onnx_nodes import nodes, subgraphs

__all__ = ["widen_bfloat16"]

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype"})


def widen_bfloat16(
    model: ModelProto, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None
) -> frozenset[str] | None:
    """Makes tensors of bfloat16 tensors of float32, in place; `change` may change the values of weights first.

    Returns the names of the outputs that were bfloat16; None if the graph has no such tensor.
    """
    narrow = frozenset(
        value.name for value in model.graph.output if value.type.tensor_type.elem_type == TensorProto.BFLOAT16
    )
    found = False
    for graph in _graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            found |= _widen_type(value)
        for tensor in graph.initializer:
            found |= _widen_tensor(tensor, change)
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.BFLOAT16:
                attribute.i, found = TensorProto.FLOAT, True
            if attribute.HasField("t"):
                found |= _widen_tensor(attribute.t, None)
    return narrow if found else None


def _graphs(model: ModelProto) -> Iterator[GraphProto]:
    yield model.graph
    for node in nodes(model):
        yield from subgraphs(node)


def _widen_type(value: ValueInfoProto) -> bool:
    if value.type.tensor_type.elem_type != TensorProto.BFLOAT16:
        return False
    value.type.tensor_type.elem_type = TensorProto.FLOAT
    return True


def _widen_tensor(tensor: TensorProto, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None) -> bool:
    if tensor.data_type != TensorProto.BFLOAT16:
        return False
    values = numpy_helper.to_array(tensor)
    wide = np.asarray(values if change is None else change(values)).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    return True
