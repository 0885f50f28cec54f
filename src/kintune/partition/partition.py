"""Partitions an ONNX graph into regions that can be compiled, and nodes that stay with onnxruntime.

Each node is tested for whether it can be compiled alone.  Nodes that can are grown into convex regions, as large as
possible without a cycle between regions, also in the bodies of If, Loop and Scan.  Regions that cannot pay are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.core.hybrid import Region
from kintune.errors import ModelError
from kintune.models.foreign_operators import is_foreign, is_only_foreign
from kintune.models.onnx import OnnxModel
from kintune.models.onnx_nodes import describe_node, operator_name, sort_nodes, subgraphs, used_tensors
from kintune.partition.composition import drop_unused_weights, mark, region_of
from kintune.partition.constant_nodes import fold_constants
from kintune.partition.growth import grow_regions
from kintune.partition.single_node import SingleNode, single_node
from kintune.partition.tensor_types import BodyPath, TensorType, TensorTypes, declared_types, infer_types
from kintune.partition.worth import can_pay

__all__ = ["Partition", "partition"]

_MOST_BYTES = 2**31 - 2**20
_MOST_REASONS = 200
_FOLDINGS = 4  # most rounds of constant folding: each may make shapes known, by which the next folds more
_OPEN = "a shape depends on the data, or a value is no tensor of numbers"
_SMALL = "too little to gain by a region of its own"
_CONTROL = frozenset({"If", "Loop", "Scan"})
_OUTSIDE = -1  # stands for a reader outside of the graph, in place of a node's number


class Partition(NamedTuple):
    """A partitioned graph.

    `marked` is the whole graph with its weights, in which nodes are marked with their region (see `composition`).
    `operators` counts those that stay with onnxruntime at any depth; `reasons` says why, by nodes as messages name
    them.  `outputs` has the types and shapes of the outputs that are tensors, with -1 for extents that are not fixed.
    """

    marked: ModelProto
    regions: tuple[Region, ...]
    operators: dict[str, int]
    reasons: dict[str, str]
    outputs: dict[str, tuple[str, tuple[int, ...]]]


def partition(model: OnnxModel, why_not: Callable[[SingleNode], str], handed_over: Collection[str] = ()) -> Partition:
    """Partition a prepared graph.  `why_not` returns why a node cannot be compiled, or "" if it can.

    `handed_over` names nodes that stay with onnxruntime even if they can be compiled; "*" stands for all.

    Raises:
        ModelError: when the graph with its weights is larger than one ONNX file can be.
    """
    typed = _last[0] if _last and _last[0].model is model else _typed(model)
    _last[:] = [typed]
    proto, types = ModelProto(), typed.types
    proto.CopyFrom(typed.proto)
    partitioner = _Partitioner(model, proto, types, why_not, handed_over)
    partitioner.run()
    _put_weights_back(model, proto)
    drop_unused_weights(proto.graph)
    reasons = dict(list(partitioner.reasons.items())[:_MOST_REASONS])
    return Partition(
        proto, tuple(partitioner.regions), dict(_left_over(proto.graph).most_common()), reasons, partitioner.outputs()
    )


class _Typed(NamedTuple):
    """A graph with folded constants, and the types of its tensors."""

    model: OnnxModel
    proto: ModelProto
    types: dict[BodyPath, TensorTypes]


_last: list[_Typed] = []
"""The graph that was partitioned last, or nothing: it is cut anew if a region fails."""


def _typed(model: OnnxModel) -> _Typed:
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    if is_only_foreign(proto):  # nothing is compiled, and a session of a large forest takes seconds
        return _Typed(model, proto, {(): declared_types(proto.graph)})
    sort_nodes(str(model.path), proto.graph)
    types = infer_types(proto)
    for _ in range(_FOLDINGS):
        if not fold_constants(proto.graph, model.opset, model.weights, types):
            break
        types = infer_types(proto)
    return _Typed(model, proto, types)


class _Partitioner:
    def __init__(
        self,
        model: OnnxModel,
        proto: ModelProto,
        types: Mapping[BodyPath, TensorTypes],
        why_not: Callable[[SingleNode], str],
        handed_over: Collection[str],
    ) -> None:
        self.regions: list[Region] = []
        self.reasons: dict[str, str] = {}
        self._proto = proto
        self._why_not = why_not
        self._handed_over = handed_over
        self._types = types
        self._outside = {
            name: TensorType(helper.np_dtype_to_tensor_dtype(values.dtype), tuple(values.shape))
            for name, values in model.weights.items()
        }

    def run(self) -> None:
        """Mark the nodes of all regions, and list these in `regions`."""
        self._graph(self._proto.graph, (), {})

    def outputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The types and shapes of the main graph's outputs, as `Partition` has them."""
        types, found = self._types[()], {}
        for value in self._proto.graph.output:
            type_ = types.get(value.name)
            if type_ is None and value.type.WhichOneof("value") == "tensor_type":
                type_ = TensorType(value.type.tensor_type.elem_type, None)
            if type_ is not None:
                rank = len(value.type.tensor_type.shape.dim)
                shape = type_.shape if type_.shape is not None else (-1,) * rank
                found[value.name] = (type_.dtype, shape)
        return found

    def _graph(self, graph: GraphProto, path: BodyPath, around: Mapping[str, TensorProto]) -> None:
        types = self._types.get(path, {})
        weights = {**around, **{tensor.name: tensor for tensor in graph.initializer}}
        inside = [self._may_be_inside(node, types, weights) for node in graph.node]
        made = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
        needed = [{made[name] for name in used_tensors(node) if name in made} for node in graph.node]
        readers: dict[str, set[int]] = {value.name: {_OUTSIDE} for value in graph.output}
        for number, node in enumerate(graph.node):
            for name in used_tensors(node):
                readers.setdefault(name, set()).add(number)
        known = {**self._outside_types(weights), **types}
        for members in grow_regions(needed, inside):
            own = set(members)
            taken = [graph.node[number] for number in members]
            read = dict.fromkeys(name for node in taken for name in used_tensors(node))
            inputs = [n for n in read if made.get(n) not in own and n not in weights and n not in self._outside]
            outputs = [name for node in taken for name in node.output if readers.get(name, set()) - own]
            if not outputs or not can_pay(taken, known, inputs, outputs):
                for node in taken:
                    self.reasons[describe_node(node)] = _SMALL
                continue
            self._add(graph, types, taken, inputs, outputs)
        for number, (node, kept) in enumerate(zip(graph.node, inside, strict=True)):
            if not kept and node.op_type in _CONTROL:
                for place, body in enumerate(subgraphs(node)):
                    self._graph(body, (*path, (number, place)), weights)

    def _outside_types(self, weights: Mapping[str, TensorProto]) -> TensorTypes:
        return {**self._outside, **{name: TensorType(t.data_type, tuple(t.dims)) for name, t in weights.items()}}

    def _may_be_inside(self, node: NodeProto, types: TensorTypes, weights: Mapping[str, TensorProto]) -> bool:
        name = describe_node(node)
        if "*" in self._handed_over:
            return False
        if name in self._handed_over:
            self.reasons[name] = "slow, wrong or not compilable in this network"
            return False
        if is_foreign(node):
            self.reasons[name] = f"operator {node.op_type} of domain {node.domain} has no compiled form"
            return False
        alone = single_node(node, types, weights, list(self._proto.opset_import), self._outside.get)
        why = _OPEN if alone is None else self._why_not(alone)
        if why:
            self.reasons[name] = why
        return not why

    def _add(
        self, graph: GraphProto, types: TensorTypes, taken: Sequence[NodeProto], inputs: list[str], outputs: list[str]
    ) -> None:
        number = len(self.regions)
        for node in taken:
            mark(node, number)
        _declare(graph, types, (*inputs, *outputs))
        names = tuple(dict.fromkeys(describe_node(node) for node in taken))
        self.regions.append(Region(f"kintune/region{number}", names, tuple(inputs), tuple(outputs)))


def _declare(graph: GraphProto, types: TensorTypes, names: Sequence[str]) -> None:
    """Declare the types of these tensors in the graph."""
    known = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
    for name in names:
        type_ = types[name]
        declared = known.get(name)
        if declared is None:
            declared = known[name] = graph.value_info.add(name=name)
        made = helper.make_tensor_value_info(name, type_.element, type_.shape)
        declared.type.CopyFrom(made.type)


def _put_weights_back(model: OnnxModel, proto: ModelProto) -> None:
    total = proto.ByteSize() + sum(values.nbytes for values in model.weights.values())
    if total > _MOST_BYTES:
        raise ModelError(
            f"{model.path}: cannot be compiled as a whole, and with {total >> 20} MiB it is too large to run partly in"
            " onnxruntime: an ONNX graph holds up to 2 GiB"
        )
    inputs = [value for value in proto.graph.input if value.name not in model.weights]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    for name, values in model.weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(values, name))


def _left_over(graph: GraphProto) -> Counter[str]:
    """How often each operator occurs, at any depth, in nodes that belong to no region."""
    counts = Counter(operator_name(node) for node in graph.node if region_of(node) is None)
    for node in graph.node:
        for inner in subgraphs(node):
            counts += _left_over(inner)
    return counts
