"""Numbers that follow from open extents, such as the places of a grid, as weights that nothing is folded into.

A detector computes the places of its grid from the size of the image.  For one size these are constants as any others;
but their values are others for each size, and no formula has them.  So what they are computed from, ranges of numbers
and constants that are repeated, become inputs of the graph, whose values for a smaller size are the first of those for
a larger one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from kintune.errors import cause_line
from kintune.models.converters.library import find
from kintune.models.evaluation import open_session
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, used_tensors

__all__ = ["take_positions_out"]

_log = logging.getLogger(__name__)

_MAKERS = ("Range", "ConstantOfShape", "Expand")
_SIZES = ("Shape", "Size")


def take_positions_out(model: ModelProto, outside: Mapping[str, NDArray[Any]], opset: int) -> dict[str, NDArray[Any]]:
    """Make inputs of the ranges and repeated constants of open extents; returns their values by name.

    `model`, whose inputs have fixed shapes, is changed.  `outside` has the values of its inputs that are weights.  What
    an operator needs as a constant, such as a shape, stays as it is.
    """
    makers = list(_makers(model, opset))
    if not makers:
        return {}
    names = [node.output[0] for node in makers]
    asked = ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    zeros = {
        port.name: np.zeros(
            [each.dim_value for each in port.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type),
        )
        for port in model.graph.input
        if port.name not in outside
    }
    try:
        values = open_session(asked, folds=True).run(names, {**zeros, **outside})
    except Exception as error:  # onnxruntime raises exceptions of many types
        _log.info(f"ranges of open extents stay as they are: {cause_line(error)}")
        return {}
    found = dict(zip(names, map(np.asarray, values), strict=True))
    for node in makers:
        model.graph.node.remove(node)
    model.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in found.items()
    )
    return found


def _makers(model: ModelProto, opset: int) -> Iterator[NodeProto]:
    """The nodes that make ranges, or repeat a constant, as often as an open extent says, and that no shape needs."""
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    needed = _needed(model, producers, opset)
    sized = set[str]()  # what follows from a size; nodes are sorted
    for node in model.graph.node:
        if node.op_type in _SIZES or sized.intersection(used_tensors(node)):
            sized.update(node.output)
        if node.domain not in DEFAULT_DOMAINS or node.op_type not in _MAKERS or node.output[0] in needed:
            continue
        if node.op_type == "Expand" and not _is_one_number(constants.get(node.input[0])):
            continue
        if sized.intersection(node.input):
            yield node


def _is_one_number(tensor: TensorProto | None) -> bool:
    return tensor is not None and all(extent == 1 for extent in tensor.dims)


def _needed(model: ModelProto, producers: Mapping[str, NodeProto], opset: int) -> set[str]:
    """The tensors that operators need as constants, and those that these are computed from."""
    waiting: list[str] = []
    for node in model.graph.node:
        known = find(node.domain, node.op_type, opset)
        if known is not None:
            waiting += [name for at, name in enumerate(node.input) if name and at in known.constants]
        waiting += set(used_tensors(node)).difference(node.input)  # of a graph inside
    needed = set[str]()
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if (node := producers.get(name)) is not None and node.op_type not in _SIZES:
            waiting += used_tensors(node)
    return needed
