"""Read an ONNX file into what the importer takes: checked, with fixed shapes, simplified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from kintune.errors import ModelError
from kintune.models.digest import onnx_digest
from kintune.models.foreign_operators import is_only_foreign
from kintune.models.graph_file import GraphFile, open_graph, readable_names
from kintune.models.index_check import check_constant_indices
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, describe_node, nodes, subgraphs
from kintune.models.open_positions import take_positions_out
from kintune.models.shapes import bind, fit_constants, with_constants
from kintune.models.slimming import slim
from kintune.models.source_graph import GraphNode, onnx_graph
from kintune.models.unrolling import unroll

if TYPE_CHECKING:
    from typing import Any

    from kintune.core.model import Constant

__all__ = ["OnnxModel", "read"]

_FOLDED_OPERATORS = frozenset({"BatchNormalization", "Conv", "ConvTranspose"})
"""Operators whose weights take in the batch norms and scales around them while the graph is simplified."""

_LONGEST_SIZE = 64  # numbers of a shape
_MOST_MADE = 2**31 - 1  # elements of a constant that a node makes
_MOST_KEPT_BYTES = 1 << 29  # of weights in a model that is kept

_MOST_FOLDED_BYTES = 1 << 30
"""Bytes of such weights up to which that is done: a protobuf message ends at 2 GiB, and is copied several times."""


@dataclass(frozen=True)
class OnnxModel:
    """A model ready for import.

    `proto` holds the graph.  `inputs` names its true inputs in order, with their shapes; what else `proto` declares as
    an input is a large weight, to be taken from `weights`.  `opset` is the version of the default operator set.
    `constants` has the inputs of the file that were bound to values, in the file's types and shapes.  `graph` has the
    nodes of the file, before simplification; those of loops that are written out a step at a time.  `positions` has the
    values of inputs of `proto` that nothing may be folded into.
    """

    path: Path
    proto: ModelProto
    inputs: dict[str, tuple[int, ...]]
    weights: dict[str, NDArray[Any]]
    digest: str
    opset: int
    constants: dict[str, NDArray[Any]]
    graph: tuple[GraphNode, ...] = ()
    positions: dict[str, NDArray[Any]] = field(default_factory=dict)


_last: list[tuple[object, OnnxModel]] = []
"""The model that was read last with what identifies it, or nothing."""


def read(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Constant] | None = None,
    *,
    own: bool = False,
    positions: bool = False,
) -> OnnxModel:
    """Read the file at `path`; `shapes` binds the dimensions that it leaves open, `constants` the values of inputs.

    With `own`, it is the user's own file: its weights may lie in other files, also behind the links of a Hugging Face
    cache.  With `positions`, what follows from open extents is not folded (see `take_positions_out`).

    Large weights that nothing is folded into stay out of `proto`, so that they are held once, or only mapped.  A graph
    in which operators of other domains do all of the work is not simplified.

    The model that was read last is kept, since a job may need it several times: as a whole, and in parts.

    Raises:
        ModelError: no ONNX file, a damaged one, weights in places they may not be read from, or a constant that is
            not for an input or does not fit it, or an index that is constant and out of range.
        ShapeError: an open dimension that is not bound, or a shape that contradicts the model.
    """
    key = _identity(path), dict(shapes), {name: each.digest for name, each in (constants or {}).items()}, own, positions
    if _last and _last[0][0] == key:
        return _last[0][1]
    _last.clear()
    with readable_names(path):
        model = _prepare(open_graph(path, own=own), shapes, constants or {}, positions)
    if sum(values.nbytes for values in model.weights.values()) <= _MOST_KEPT_BYTES:
        _last.append((key, model))
    return model


def _identity(path: Path) -> tuple[object, ...]:
    """What tells whether a file is still the same one."""
    try:
        about = path.stat()
    except OSError:  # reading it says so
        return (path,)
    return path, about.st_ino, about.st_size, about.st_mtime_ns


def _prepare(
    file: GraphFile, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant], positions: bool
) -> OnnxModel:
    values = fit_constants(str(file.path), file.graph, constants)
    fixed = bind(str(file.path), file.graph, with_constants(str(file.path), shapes, values), file.weights)
    file = file.bound(values)
    fixed = {name: shape for name, shape in fixed.items() if name not in values}
    digest = onnx_digest(file, fixed)
    outside_weights = {name: file.weights[name] for name in _kept_outside(file)}
    proto = file.assemble(outside=outside_weights.keys())
    if is_only_foreign(proto):  # it cannot be imported, and a forest of trees may be large
        return _model(file, proto, fixed, values, digest, file.graph.graph)
    kept = take_positions_out(proto, outside_weights, _opset(proto)) if positions else {}
    outside_weights |= kept
    proto = slim(proto, str(file.path), outside_weights)
    opset = _opset(proto)
    graph = file.graph.graph
    while unrolled := unroll(proto, opset):  # again, since what a loop computes may tell how often another one runs
        graph = unrolled.graph
        proto = slim(unrolled, str(file.path), outside_weights)
    check_constant_indices(str(file.path), proto, outside_weights)
    _check_sizes(str(file.path), proto)
    return replace(_model(file, proto, fixed, values, digest, graph), positions=kept)


def _model(
    file: GraphFile,
    proto: ModelProto,
    fixed: dict[str, tuple[int, ...]],
    values: dict[str, NDArray[Any]],
    digest: str,
    graph: GraphProto,
) -> OnnxModel:
    outside = {value.name for value in proto.graph.input} - fixed.keys()
    return OnnxModel(
        path=file.path,
        proto=proto,
        inputs=fixed,
        weights={name: values for name, values in file.weights.items() if name in outside},
        digest=digest,
        opset=_opset(proto),
        constants=values,
        graph=onnx_graph(graph),
    )


def _opset(proto: ModelProto) -> int:
    return next((entry.version for entry in proto.opset_import if entry.domain in DEFAULT_DOMAINS), 0)


def _check_sizes(label: str, proto: ModelProto) -> None:
    """Refuse constants that are made of a size which no memory holds: ONNX's inference of shapes makes all elements."""
    known = {tensor.name: tensor for tensor in _small_constants(proto)}
    for node in nodes(proto):
        given = [known[name] for name in node.input if name in known]
        if node.op_type not in ("ConstantOfShape", "Range") or not given or len(given) < len(node.input):
            continue
        sizes = [numpy_helper.to_array(tensor).reshape(-1).tolist() for tensor in given]
        if node.op_type == "ConstantOfShape":
            count = math.prod(sizes[0])
        elif [len(each) for each in sizes] == [1, 1, 1]:
            (start,), (end,), (step,) = sizes
            count = (end - start) / step if step else 0
        else:
            continue  # the import refuses it
        if count > _MOST_MADE:
            raise ModelError(f"{label}: {describe_node(node)} makes {count:.0f} elements, more than memory holds")


def _small_constants(proto: ModelProto) -> Iterator[TensorProto]:
    """Constants that may be sizes, by the names that nodes read: of the graph and of the graphs inside it."""
    inner = (tensor for node in nodes(proto) for graph in subgraphs(node) for tensor in graph.initializer)
    for tensor in (*proto.graph.initializer, *inner):
        if math.prod(tensor.dims) <= _LONGEST_SIZE:
            yield tensor
    for node in nodes(proto):
        value = next((each.t for each in node.attribute if each.name == "value"), None)
        if node.op_type == "Constant" and value is not None and math.prod(value.dims) <= _LONGEST_SIZE:
            named = TensorProto()
            named.CopyFrom(value)
            named.name = node.output[0]
            yield named


def _kept_outside(file: GraphFile) -> set[str]:
    """Names of the large weights that simplification has no use for."""
    large = file.large_weights()
    folded = {name for node in nodes(file.graph) if node.op_type in _FOLDED_OPERATORS for name in node.input}
    if sum(file.weights[name].nbytes for name in large & folded) > _MOST_FOLDED_BYTES:
        return large
    return large - folded
