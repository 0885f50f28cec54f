"""Reads and checks an ONNX file, and separates its graph from its weights, which may be mapped rather than loaded."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, inliner, numpy_helper

from kintune.errors import ModelError, cause_line
from kintune.hardware.cores import memory_mb
from kintune.models.external import ExternalData
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, describe_node, nested_tensors, nodes, sort_nodes, subgraphs
from kintune.models.stored_size import misfit

if TYPE_CHECKING:
    from typing import Any

__all__ = ["GraphFile", "external_locations", "external_weights", "open_graph", "readable_names"]

_LARGE = 64 * 1024
_PROTOBUF_LIMIT = 2**31 - 1
_ORT_MARK = b"ORTM"  # from the fifth byte of a file in onnxruntime's own format
_OLDEST_IR = 3
_MOST_INLINED = 1_000_000  # nodes
_WEIGHTS_APART = 4  # the version of the format since which weights need not be inputs as well

_OF_ONNXRUNTIME = frozenset(
    {"LayerNormalization", "MeanVarianceNormalization", "SimplifiedLayerNormalization", "ThresholdedRelu"}
)
"""Operators that onnxruntime writes in the default domain, also in versions of the standard that do not define them."""

_UNCHECKED_DOMAIN = "com.microsoft"  # the checker takes nodes of other domains as they are


@dataclass(frozen=True)
class GraphFile:
    """`graph` is a model without initializers; `weights` are those initializers by name, in the file's order.

    Weights that hold strings are arrays of objects.
    """

    path: Path
    graph: ModelProto
    weights: dict[str, NDArray[Any]]

    def assemble(self, outside: Collection[str] = ()) -> ModelProto:
        """Build a model with these weights; those named in `outside` become inputs, after the model's own."""
        model = ModelProto()
        model.CopyFrom(self.graph)
        for name, values in self.weights.items():
            if name in outside:
                kind = helper.np_dtype_to_tensor_dtype(values.dtype)
                model.graph.input.append(helper.make_tensor_value_info(name, kind, values.shape))
            else:
                model.graph.initializer.append(numpy_helper.from_array(values, name))
        return model

    def bound(self, constants: Mapping[str, NDArray[Any]]) -> GraphFile:
        """The same file with the inputs named in `constants` turned into weights."""
        if not constants:
            return self
        graph = ModelProto()
        graph.CopyFrom(self.graph)
        inputs = [value for value in graph.graph.input if value.name not in constants]
        del graph.graph.input[:]
        graph.graph.input.extend(inputs)
        return GraphFile(self.path, graph, {**self.weights, **constants})

    def large_weights(self) -> set[str]:
        """Names of the weights of 64 KiB or more: too large to be shapes or indices, which simplification needs."""
        return {name for name, values in self.weights.items() if values.nbytes >= _LARGE and values.dtype != object}


def open_graph(path: Path, *, own: bool = False) -> GraphFile:
    """Read and check an ONNX file; external weights are mapped, not loaded.

    With `own`, it is the user's own file: its weights may lie in other files, also behind the links of a Hugging Face
    cache.

    Raises:
        ModelError: when it is no ONNX file, is damaged, or keeps weights where they may not be read from.
    """
    with readable_names(path):
        return _take_apart(path, _parse(path), own=own)


def external_weights(path: Path, *, own: bool = False) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the names and values of the weights that an ONNX file keeps in other files; these are mapped, not loaded.

    `own` is as in `open_graph`.

    Raises:
        ModelError: when it is no ONNX file, is damaged, or keeps weights where they may not be read from.
    """
    with readable_names(path):
        graph = _parse(path)
        external = ExternalData(path, own=own)
        for tensor in (*graph.graph.initializer, *nested_tensors(graph)):
            if tensor.data_location == TensorProto.EXTERNAL:
                yield tensor.name, external.read(tensor)


def external_locations(path: Path) -> list[str]:
    """Return the names of the other files in which an ONNX file keeps weights, as it calls them; they are not opened.

    Raises:
        ModelError: when it is no ONNX file, or is damaged.
    """
    with readable_names(path):
        graph = _parse(path)
        tensors = (*graph.graph.initializer, *nested_tensors(graph))
        entries = (
            entry for each in tensors if each.data_location == TensorProto.EXTERNAL for entry in each.external_data
        )
        return list(dict.fromkeys(entry.value for entry in entries if entry.key == "location"))


def _take_apart(path: Path, graph: ModelProto, *, own: bool) -> GraphFile:
    external = ExternalData(path, own=own)
    for tensor in nested_tensors(graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            values = external.read(tensor)
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = numpy_helper.from_array(values).raw_data
        elif problem := misfit(tensor):
            raise ModelError(f"{path}: the constant {tensor.name!r} is damaged: {problem}")
    if graph.graph.sparse_initializer:
        raise ModelError(f"{path}: has sparse weights, which cannot be imported; make them dense before exporting")
    weights: dict[str, NDArray[Any]] = {}
    for tensor in graph.graph.initializer:
        if tensor.name in weights:
            raise ModelError(f"{path}: has two weights named {tensor.name!r}; export the model again")
        weights[tensor.name] = _values(path, tensor, external)
    _check_memory(path, weights)
    del graph.graph.initializer[:]
    inputs = [value for value in graph.graph.input if value.name not in weights]
    del graph.graph.input[:]
    graph.graph.input.extend(inputs)
    graph.ir_version = max(graph.ir_version, _WEIGHTS_APART)
    sort_nodes(str(path), graph.graph)
    if graph.functions:
        graph = _inlined(path, graph)
    opened = GraphFile(path, graph, weights)
    _check(opened)
    _check_nodes(opened)
    return opened


def _check_memory(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Refuse weights that are larger than the memory; those in other files are only mapped until they are used."""
    needed = sum(values.nbytes for values in weights.values())
    memory = memory_mb() << 20
    if needed > memory:
        largest = max(weights, key=lambda name: weights[name].nbytes)
        raise ModelError(
            f"{path}: its weights take {needed / 2**30:.1f} GiB (the largest is {largest!r}), and this machine has "
            f"{memory / 2**30:.1f} GiB of memory"
        )


def _check(file: GraphFile) -> None:
    """Check the graph with ONNX's own checker."""
    model = file.assemble(outside=file.large_weights())
    _fill_in_for_the_checker(model)
    _hide_operators_of_onnxruntime(model)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"{file.path}: is not a valid ONNX model: {cause_line(error)}") from error


def _check_nodes(file: GraphFile) -> None:
    """Check what ONNX's own checker does not: attributes that stand for others, and what a loop's body is called with.

    onnxruntime refuses such a model, or does not come to an end.
    """
    for node in nodes(file.graph):
        if problem := _problem(node):
            raise ModelError(f"{file.path}: is not a valid ONNX model: node {describe_node(node)}: {problem}")


def _problem(node: NodeProto) -> str:
    """What is wrong with a node; empty where nothing is."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return f"its attribute {attribute.name} is that of a function, and it is in none"
    if node.op_type not in ("Loop", "Scan") or node.domain not in DEFAULT_DOMAINS or "body" not in attributes:
        return ""
    body, given = attributes["body"].g, len(node.input)
    if node.op_type == "Scan" and not 1 <= attributes["num_scan_inputs"].i <= given:
        return f"it scans {attributes['num_scan_inputs'].i} of {given} inputs"
    if len(body.input) not in (given, given - 1):  # the first one of an early Scan is not for its body
        return f"its body takes {len(body.input)} inputs, and it has {given}"
    if len(node.output) > len(body.output):
        return f"its body gives {len(body.output)} results, and it has {len(node.output)}"
    return ""


def _fill_in_for_the_checker(model: ModelProto) -> None:
    """Add names of graphs, types of outputs, and shapes: the checker demands them, onnxruntime does not."""
    del model.metadata_props[:]  # the checker refuses keys that occur twice
    for graph in (model.graph, *(body for node in nodes(model) for body in subgraphs(node))):
        graph.name = graph.name or "graph"
    for value in model.graph.output:
        if value.type.WhichOneof("value") is None:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.shape.SetInParent()


def _hide_operators_of_onnxruntime(model: ModelProto) -> None:
    """Move operators that only onnxruntime defines in the default domain to a domain that is not checked."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), 0)
    hidden = [
        node
        for node in nodes(model)
        if node.domain in DEFAULT_DOMAINS and node.op_type in _OF_ONNXRUNTIME and not defs.has(node.op_type, opset)
    ]
    for node in hidden:
        node.domain = _UNCHECKED_DOMAIN
    if hidden and all(entry.domain != _UNCHECKED_DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_UNCHECKED_DOMAIN, 1))


@contextmanager
def readable_names(path: Path) -> Iterator[None]:
    """Raise a `ModelError` for text that is not UTF-8, which protobuf finds only when a field is read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: is not a valid ONNX model: it holds text that is not UTF-8") from error


def _parse(path: Path) -> ModelProto:
    try:
        size = path.stat().st_size
        if size > _PROTOBUF_LIMIT:
            raise ModelError(
                f"{path}: {size} bytes are more than an ONNX file can hold; save its weights as external data"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    if not content:
        raise ModelError(f"{path}: the file is empty")
    if content[4:8] == _ORT_MARK:
        raise ModelError(f"{path}: is in onnxruntime's own format; give the ONNX file that it was made from")
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(f"{path}: is not an ONNX file, or is incomplete") from error
    if not model.HasField("graph") or not model.opset_import or not model.graph.output:
        raise ModelError(
            f"{path}: is not an ONNX file, or is incomplete: it has no graph with outputs and operator set"
        )
    if model.ir_version < _OLDEST_IR:
        raise ModelError(f"{path}: ONNX format {model.ir_version} is too old; at least {_OLDEST_IR} is needed")
    if not all(isinstance(name, str) for name in _names(model)):
        raise ModelError(f"{path}: is not a valid ONNX model: it holds a name that is not UTF-8 text")
    return model


def _names(model: ModelProto) -> Iterator[str | bytes]:
    """All names in the graph; protobuf returns bytes for names that are not UTF-8."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        yield value.name
    for node in nodes(model):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name


def _values(path: Path, tensor: TensorProto, external: ExternalData) -> NDArray[Any]:
    """A weight's values; raises a `ModelError` when they do not fit its shape."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return external.read(tensor)
    if problem := misfit(tensor):
        raise ModelError(f"{path}: weight {tensor.name!r} is damaged: {problem}")
    try:
        values: NDArray[Any] = np.asarray(numpy_helper.to_array(tensor))
    except (TypeError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path}: weight {tensor.name!r} is damaged: {cause_line(error)}") from error
    if values.shape != tuple(tensor.dims) or values.size != math.prod(tensor.dims):
        raise ModelError(f"{path}: weight {tensor.name!r} is damaged: its values do not fill its shape")
    return values


def _inlined(path: Path, model: ModelProto) -> ModelProto:
    """The model with calls of its local functions inlined.

    Raises:
        ModelError: functions call each other in a circle, the nodes become too many, or they cannot be inlined.
    """
    bodies = {(function.domain, function.name): function for function in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(key: tuple[str, str], callers: tuple[tuple[str, str], ...]) -> int:
        """The nodes that a call becomes."""
        if key in callers:
            raise ModelError(f"{path}: is not a valid ONNX model: its function {key[1]!r} calls itself")
        if key not in counts:
            counts[key] = sum(
                count((node.domain, node.op_type), (*callers, key)) if (node.domain, node.op_type) in bodies else 1
                for node in nodes(ModelProto(functions=[bodies[key]]))
            )
        return counts[key]

    called = [key for node in nodes(ModelProto(graph=model.graph)) if (key := (node.domain, node.op_type)) in bodies]
    if sum(count(key, ()) for key in called) > _MOST_INLINED:
        raise ModelError(f"{path}: its local functions become more than {_MOST_INLINED} nodes; export it without them")
    try:
        inlined: ModelProto = inliner.inline_local_functions(model)
    except Exception as error:  # the inliner passes on exceptions of its C++ code
        raise ModelError(f"{path}: its local functions cannot be inlined: {cause_line(error)}") from error
    return inlined
