"""Checks that constant indices of ONNX nodes are in range, since compiled programs do not check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, numpy_helper, shape_inference

from kintune.errors import ModelError
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, describe_node

if TYPE_CHECKING:
    from typing import Any

__all__ = ["check_constant_indices"]

_BY_ELEMENT = frozenset({"GatherElements", "ScatterElements", "Scatter"})
_BY_TUPLE = frozenset({"GatherND", "ScatterND"})
_INDEXING = frozenset({"Gather"}) | _BY_ELEMENT | _BY_TUPLE


def check_constant_indices(label: str, model: ModelProto, weights: Mapping[str, NDArray[Any]]) -> None:
    """Check all nodes of the main graph that index by a constant.

    Branches and bodies of loops are not checked, since they may never run; nor are axes of unknown size.  `weights` has
    the values of inputs that are weights.

    Raises:
        ModelError: when an index is out of range; the message names the node, the index and the size.
    """
    unknown = False

    def check(node: NodeProto, indices: NDArray[Any], shape: tuple[int | None, ...] | None) -> None:
        nonlocal unknown
        unknown = unknown or shape is None
        for axis, values in _by_axis(node, indices, len(shape)) if shape is not None else ():
            size = shape[axis] if shape is not None else None
            unknown = unknown or size is None
            if size is None or values.size == 0:
                continue
            outside = (values < -size) | (values >= size)
            if outside.any():
                raise ModelError(
                    f"{label}: node {describe_node(node)}: index {int(values[outside].flat[0])} is outside of axis "
                    f"{axis}, which has {size} elements"
                )

    _walk(model.graph, weights, check)
    if unknown:
        try:
            inferred = shape_inference.infer_shapes(model)
        except Exception:  # it has its own exception types; the import finds what is wrong
            return
        _walk(inferred.graph, weights, check)


def _walk(
    graph: GraphProto,
    weights: Mapping[str, NDArray[Any]],
    check: Callable[[NodeProto, NDArray[Any], tuple[int | None, ...] | None], None],
) -> None:
    """Call `check` for each node of `graph` that indexes by a constant, with the indices and the data's shape."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    shapes: dict[str, tuple[int | None, ...]] = {
        **{port.name: _shape(port) for port in (*graph.input, *graph.output, *graph.value_info) if _has_shape(port)},
        **{name: tuple(tensor.dims) for name, tensor in tensors.items()},
    }
    for node in graph.node:
        if node.op_type in _INDEXING and node.domain in DEFAULT_DOMAINS and len(node.input) > 1:
            name = node.input[1]
            indices = numpy_helper.to_array(tensors[name]) if name in tensors else weights.get(name)
            if indices is not None and indices.dtype.kind in "iu":
                check(node, indices, shapes.get(node.input[0]))


def _by_axis(node: NodeProto, indices: NDArray[Any], rank: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yields each axis that a node indexes, with the indices of this axis."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type in _BY_TUPLE:
        first = attributes.get("batch_dims", 0)
        for offset in range(indices.shape[-1] if indices.ndim else 0):
            if first + offset < rank:
                yield first + offset, indices[..., offset]
        return
    axis = attributes.get("axis", 0)
    if -rank <= axis < rank:
        yield axis % rank, np.atleast_1d(indices)


def _has_shape(port: ValueInfoProto) -> bool:
    return bool(port.type.WhichOneof("value") == "tensor_type" and port.type.tensor_type.HasField("shape"))


def _shape(port: ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(
        dim.dim_value if dim.WhichOneof("value") == "dim_value" else None for dim in port.type.tensor_type.shape.dim
    )
