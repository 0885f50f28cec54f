"""Infers the types and shapes of all tensors of an ONNX graph whose input shapes are fixed.

ONNX's own inference finds most of them; onnxruntime's finds others, of its own operators for instance.  A shape that
neither finds depends on the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, shape_inference

from kintune.models.evaluation import open_session
from kintune.models.foreign_operators import ONNXRUNTIME_DOMAIN
from kintune.models.onnx_nodes import nodes, subgraphs

__all__ = ["BodyPath", "TensorType", "TensorTypes", "bodies_of", "declared_types", "infer_types"]


class TensorType(NamedTuple):
    """The element type of a tensor, as ONNX numbers it, and its shape, which is None where it is not fixed."""

    element: int
    shape: tuple[int, ...] | None

    @property
    def is_fixed(self) -> bool:
        """Whether the shape is known and has no extent of 0."""
        return self.shape is not None and 0 not in self.shape

    @property
    def dtype(self) -> str:
        """numpy's name of the element type; "string" and "bfloat16" for these two."""
        if self.element == TensorProto.BFLOAT16:
            return "bfloat16"
        return "string" if self.element == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(self.element).name

    @property
    def nbytes(self) -> int:
        """Bytes of a tensor of this type; 0 where the shape is not fixed."""
        if self.shape is None or self.element == TensorProto.STRING:
            return 0
        size = helper.tensor_dtype_to_np_dtype(self.element).itemsize
        for extent in self.shape:
            size *= extent
        return int(size)


TensorTypes: TypeAlias = "dict[str, TensorType]"
"""Types by the tensor's name; values that are no tensors are left out.  A body also has those of the graphs around."""

BodyPath: TypeAlias = "tuple[tuple[int, int], ...]"
"""The path to a body from the main graph inwards: the number of a node and of a graph inside it, repeatedly."""


def infer_types(model: ModelProto) -> dict[BodyPath, TensorTypes]:
    """Return the types of the tensors of the main graph, whose path is (), and of each body inside it."""
    inferred = _inferred(model)
    types = declared_types(inferred.graph)
    unknown = [
        name
        for node in model.graph.node
        for name in node.output
        if name and (name not in types or types[name].shape is None)
    ]
    for name, found in _known_to_onnxruntime(model, unknown).items():
        types[name] = found
    found_in: dict[BodyPath, TensorTypes] = {(): types}
    for path, body in bodies_of(inferred.graph):
        found_in[path] = declared_types(body, found_in[path[:-1]])
    return found_in


def bodies_of(graph: GraphProto, path: BodyPath = ()) -> Iterator[tuple[BodyPath, GraphProto]]:
    """The graphs inside the nodes of a graph, depth first, with their paths."""
    for number, node in enumerate(graph.node):
        for place, body in enumerate(subgraphs(node)):
            inner = (*path, (number, place))
            yield inner, body
            yield from bodies_of(body, inner)


_ALIKE = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), "Identity"),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SkipLayerNormalization"), "Identity"),
    "SkipSimplifiedLayerNormalization": "Identity",
    "DynamicQuantizeLSTM": "LSTM",
    "DynamicQuantizeMatMul": "MatMul",
    "FusedMatMul": "MatMul",
}
"""Operators of ONNX Runtime, by those of the standard whose (first) result has the same type and shape."""


def _in_standard_terms(model: ModelProto) -> ModelProto:
    """A copy of a model, for the inference of types alone, with standard operators in place of onnxruntime's.

    The standard's inference does not know the latter.  It would end at each of them, and at each shape that is computed
    from their results, so that many rounds were needed.
    """
    found = ModelProto()
    found.CopyFrom(model)
    for node in nodes(found):
        alike = _ALIKE.get(node.op_type) if node.domain == ONNXRUNTIME_DOMAIN else None
        if alike is None or any(attribute.name.startswith("trans") and attribute.i for attribute in node.attribute):
            continue
        node.domain, node.op_type = "", alike
        if alike != "LSTM":
            del node.output[1:]
            del node.input[1 if alike == "Identity" else 2 :]
    return found


def _inferred(model: ModelProto) -> ModelProto:
    try:
        return shape_inference.infer_shapes(_in_standard_terms(model), data_prop=True)
    except Exception:  # the inference passes on exceptions of its C++ code; then only onnxruntime's types are known
        return model


def declared_types(graph: GraphProto, around: TensorTypes | None = None) -> TensorTypes:
    """Return the types that a graph declares of its tensors, and those of the graphs `around` it."""
    types = dict(around or {})
    for value in (*graph.input, *graph.value_info, *graph.output):
        if (found := _type_of(value)) is not None:
            types[value.name] = found
    for tensor in graph.initializer:
        types[tensor.name] = TensorType(tensor.data_type, tuple(tensor.dims))
    return types


def _type_of(value: ValueInfoProto) -> TensorType | None:
    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.elem_type:
        return None
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return TensorType(declared.elem_type, None)
    extents = [d.dim_value if d.HasField("dim_value") else -1 for d in declared.shape.dim]
    return TensorType(declared.elem_type, None if -1 in extents else tuple(extents))


_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]

_ORT_ELEMENTS = {
    "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16, "bool": TensorProto.BOOL, "string": TensorProto.STRING,
    **{name: getattr(TensorProto, name.upper()) for name in _INTEGERS},
}  # fmt: skip


def _known_to_onnxruntime(model: ModelProto, names: Iterable[str]) -> TensorTypes:
    """The types that onnxruntime's inference finds for these tensors; empty where it refuses the model."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    asked = ModelProto()
    asked.CopyFrom(model)
    given = {value.name for value in asked.graph.output}
    asked.graph.output.extend(helper.make_value_info(name, TypeProto()) for name in wanted if name not in given)
    try:
        described = open_session(asked).get_outputs()
    except Exception:  # onnxruntime has its own exception types
        return {}
    types: TensorTypes = {}
    for value in described:
        element = _ORT_ELEMENTS.get(value.type.removeprefix("tensor(").removesuffix(")"))
        if value.name in wanted and element is not None and value.type.startswith("tensor("):
            fixed = all(isinstance(extent, int) and extent >= 0 for extent in value.shape)
            types[value.name] = TensorType(element, tuple(value.shape) if fixed else None)
    without = [name for name, type_ in types.items() if type_.shape == ()]
    scalars = _scalars(model, without)
    return {name: t._replace(shape=None) if name in without and name not in scalars else t for name, t in types.items()}


def _scalars(model: ModelProto, names: Sequence[str]) -> set[str]:
    """Those of these tensors that are scalars.

    onnxruntime describes a scalar and a tensor of unknown rank in the same way.  So the type of each tensor's shape is
    inferred: that of a scalar has no elements.
    """
    if not names:
        return set()
    asked = ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    for number, name in enumerate(names):
        rank = f"kintune rank {number}"
        asked.graph.node.append(helper.make_node("Shape", [name], [rank]))
        asked.graph.output.append(helper.make_value_info(rank, TypeProto()))
    try:
        described = open_session(asked).get_outputs()
    except Exception:  # onnxruntime has its own exception types
        return set()
    return {name for name, value in zip(names, described, strict=True) if value.shape == [0]}
