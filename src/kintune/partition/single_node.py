"""A model of one node alone, with the shapes and constants that it has in its graph, and a digest of what it asks for.

Equal digests say that the compiler gets the same to do, wherever the node stands.  Does not import TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, helper

from kintune.core.candidate import digest_of
from kintune.models.onnx_nodes import used_tensors
from kintune.partition.tensor_types import TensorType

__all__ = ["SingleNode", "single_node"]

_VALUE_BYTES = 1 << 12
"""Up to so many bytes the values of a constant may decide how a node is compiled: shapes, axes, pads."""


class SingleNode(NamedTuple):
    """A model with one node; `inputs` has the shapes of its inputs in order, `digest` says what it asks for."""

    model: ModelProto
    inputs: dict[str, tuple[int, ...]]
    digest: str


def single_node(
    node: NodeProto,
    types: Mapping[str, TensorType],
    weights: Mapping[str, TensorProto],
    opsets: list[OperatorSetIdProto],
    weight_type: Callable[[str], TensorType | None],
) -> SingleNode | None:
    """Return the model of a node, or None where the type or the shape of one of its tensors is not fixed, or a value is
    no tensor of numbers.

    `weights` are constants by name; `weight_type` has the types of those that are too large to be there.
    """
    read = list(dict.fromkeys(used_tensors(node)))
    graph = GraphProto(name="node")
    inputs: dict[str, tuple[int, ...]] = {}
    parts = [node.op_type, node.domain, *(f"{entry.domain} {entry.version}" for entry in opsets)]
    names = {name: f"i{position}" for position, name in enumerate(read)}
    for name in read:
        tensor = weights.get(name)
        if tensor is not None:
            if tensor.data_type == TensorProto.STRING:
                return None
            graph.initializer.append(tensor)
            parts.append(
                f"{names[name]} constant {tensor.data_type} {tuple(tensor.dims)} {digest_of(_content(tensor))}"
            )
            continue
        type_ = weight_type(name) or types.get(name)
        if type_ is None or type_.shape is None or not type_.is_fixed or type_.element == TensorProto.STRING:
            return None
        graph.input.append(helper.make_tensor_value_info(name, type_.element, type_.shape))
        inputs[name] = type_.shape
        parts.append(f"{names[name]} {type_.element} {type_.shape}")
    for name in node.output:
        if name:
            type_ = types.get(name)
            if type_ is None or not type_.is_fixed or type_.element == TensorProto.STRING:
                return None
            graph.output.append(helper.make_tensor_value_info(name, type_.element, type_.shape))
    parts += [" ".join(names.get(name, "") for name in node.input), " ".join("o" if n else "" for n in node.output)]
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        parts.append(attribute.SerializeToString(deterministic=True).hex())
    graph.node.append(node)
    model = ModelProto(ir_version=10, graph=graph)
    model.opset_import.extend(opsets)
    return SingleNode(model, inputs, digest_of(*(part.encode() for part in parts)))


def _content(tensor: TensorProto) -> bytes:
    """The values of a small constant, whatever its name; nothing of a large one."""
    if tensor.ByteSize() > _VALUE_BYTES:
        return b""
    nameless = TensorProto()
    nameless.CopyFrom(tensor)
    nameless.ClearField("name")
    nameless.ClearField("doc_string")
    return bytes(nameless.SerializeToString(deterministic=True))
