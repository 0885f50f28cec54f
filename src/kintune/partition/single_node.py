"""Makes a model of one node alone, with the shapes and constants that it has in its graph, and a digest of it.

Nodes with equal digests are the same to the compiler, in whatever graph they are.  Does not import TVM.
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
"""Values of constants up to so many bytes are in the digest: they may be shapes, axes or pads."""


class SingleNode(NamedTuple):
    """A model with one node; `inputs` has the shapes of its inputs in order, `digest` identifies the node's work.

    Nodes of one `kind` differ at most in the extents and the constants of their tensors.
    """

    model: ModelProto
    inputs: dict[str, tuple[int, ...]]
    digest: str
    kind: str


def single_node(
    node: NodeProto,
    types: Mapping[str, TensorType],
    weights: Mapping[str, TensorProto],
    opsets: list[OperatorSetIdProto],
    weight_type: Callable[[str], TensorType | None],
) -> SingleNode | None:
    """Return the model of a node; None where one of its values has no fixed type or shape, or is no tensor of numbers.

    `weights` are constants by name.  `weight_type` returns the types of those that are too large to be there, and None
    for other names.
    """
    read = list(dict.fromkeys(used_tensors(node)))
    graph = GraphProto(name="node")
    inputs: dict[str, tuple[int, ...]] = {}
    parts = [node.op_type, node.domain, *(f"{entry.domain} {entry.version}" for entry in opsets)]
    kinds = list(parts)
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
            kinds.append(f"{names[name]} constant {tensor.data_type} {len(tensor.dims)}")
            continue
        type_ = weight_type(name) or types.get(name)
        if type_ is None or type_.shape is None or not type_.is_fixed or type_.element == TensorProto.STRING:
            return None
        graph.input.append(helper.make_tensor_value_info(name, type_.element, type_.shape))
        inputs[name] = type_.shape
        parts.append(f"{names[name]} {type_.element} {type_.shape}")
        kinds.append(f"{names[name]} {type_.element} {len(type_.shape)}")
    for name in node.output:
        if name:
            type_ = types.get(name)
            if type_ is None or not type_.is_fixed or type_.element == TensorProto.STRING:
                return None
            graph.output.append(helper.make_tensor_value_info(name, type_.element, type_.shape))
    ports = [" ".join(names.get(name, "") for name in node.input), " ".join("o" if n else "" for n in node.output)]
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        ports.append(attribute.SerializeToString(deterministic=True).hex())
    graph.node.append(node)
    model = ModelProto(ir_version=10, graph=graph)
    model.opset_import.extend(opsets)
    digest, kind = (digest_of(*(part.encode() for part in (*own, *ports))) for own in (parts, kinds))
    return SingleNode(model, inputs, digest, kind)


def _content(tensor: TensorProto) -> bytes:
    """The content of a small constant without its name; empty for a large one."""
    if tensor.ByteSize() > _VALUE_BYTES:
        return b""
    nameless = TensorProto()
    nameless.CopyFrom(tensor)
    nameless.ClearField("name")
    nameless.ClearField("doc_string")
    return bytes(nameless.SerializeToString(deterministic=True))
