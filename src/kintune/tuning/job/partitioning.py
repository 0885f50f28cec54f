"""Loads a model that cannot be compiled as a whole: its regions as networks, the rest for onnxruntime."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import tvm
from onnx import ModelProto

from kintune.compiler.graph.provenance import origins
from kintune.compiler.graph.source_nodes import nodes_of
from kintune.core.hybrid import Region
from kintune.core.model import Combination, ModelRef, Tensor
from kintune.errors import ModelError, cause_line
from kintune.models.constants import store_constant
from kintune.models.evaluation import open_session
from kintune.models.input_kinds import with_demand
from kintune.models.input_values import InputDemand, onnx_demands
from kintune.models.onnx import OnnxModel, read
from kintune.models.onnx_nodes import nodes, operator_name
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import ONNX, ZOO
from kintune.partition.compilable import CompilableNodes
from kintune.partition.composition import extract
from kintune.partition.import_region import import_region
from kintune.partition.keeping import original_model
from kintune.partition.partition import Partition, partition
from kintune.partition.tensor_types import TensorType
from kintune.tuning.job.handover import EVERYTHING
from kintune.tuning.job.lowering import lower_network
from kintune.tuning.job.networks import Networks, PartitionedModel, ShapedNetwork

__all__ = ["RefusedByOnnxRuntime", "can_partition", "load_partitioned"]

_log = logging.getLogger(__name__)

_MOST_TOLD = 6  # operators in a note
_MOST_NAMED = 3  # nodes of a region in the log
_KINDS = {"seq": "sequence"}  # as onnxruntime names them, where Kintune does otherwise
_LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND", "OneHot"})


class RefusedByOnnxRuntime(ModelError):
    """onnxruntime does not take a model, for this `reason`."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"{model}: onnxruntime does not take it: {reason}")
        self.reason = reason


def can_partition(ref: ModelRef) -> bool:
    """Return whether a model can run partly in onnxruntime: it is an ONNX file, with one combination of shapes."""
    return ref.kind in (ONNX, ZOO) and not ref.more_shapes and not ref.ranges


def load_partitioned(
    ref: ModelRef, target: tvm.target.Target, *, handed_over: Collection[str] = (), conservative: bool = False
) -> Networks:
    """Import the regions of a model that can be compiled, and lower them.

    `handed_over` names nodes that are to stay with onnxruntime; "*" stands for all of them.  Then onnxruntime runs the
    graph of the file, since it rounds the prepared one, with its fixed shapes, otherwise: the model may have failed for
    no other reason.  A region that cannot be imported or lowered stays with onnxruntime as a whole.

    Raises:
        RefusedByOnnxRuntime: onnxruntime does not take the model.
        InputError: the file cannot be read any more.
        ModelError: the file cannot be used, or the model is too large.
    """
    model = read(onnx_path_of(ref), ref.shapes, ref.constants, own=ref.reads_other_files)
    kinds = _accepted_outputs(model)
    compilable = CompilableNodes(target)
    left = set(handed_over)
    while True:
        found = partition(model, compilable.why_not, left)
        try:
            networks, in_fact, notes = _networks(ref, found, model.digest, target, conservative)
            break
        except _RegionFailed as failed:
            left.update(failed.region.nodes)
    inputs = _inputs(found.marked, [network.combination.inputs for network in networks])
    outputs = tuple(
        _tensor(value.name, found.outputs.get(value.name), kinds.get(value.name, ""))
        for value in found.marked.graph.output
    )
    constants = {name: store_constant(name, values, typed=True) for name, values in model.constants.items()}
    if EVERYTHING in handed_over:
        original = original_model(model.path, constants, own=ref.reads_other_files)
        counts = Counter(map(operator_name, nodes(original)))
        found = found._replace(marked=original, operators=dict(counts.most_common()))
    return Networks(
        tuple(networks),
        ref.name,
        str(model.path),
        None,
        constants,
        in_fact,
        (*notes, _told(found), *_told_choices(inputs)),
        PartitionedModel(model.digest, Combination(inputs, outputs), found),
    )


def _accepted_outputs(model: OnnxModel) -> dict[str, str]:
    """The outputs that are no tensors, with the names of their kinds, of a graph that onnxruntime takes.

    Raises:
        RefusedByOnnxRuntime: it does not take the graph.
    """
    try:
        outputs = open_session(model.proto).get_outputs()
    except Exception as error:  # it raises its own kinds
        raise RefusedByOnnxRuntime(str(model.path), cause_line(error)) from error
    kinds = {value.name: value.type.partition("(")[0] for value in outputs}
    return {name: _KINDS.get(kind, kind) for name, kind in kinds.items() if kind != "tensor"}


def _some(nodes: Sequence[str]) -> str:
    """Nodes by name, the first of them where there are many."""
    return ", ".join(nodes[:_MOST_NAMED]) + (
        f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    )


class _RegionFailed(Exception):
    def __init__(self, region: Region) -> None:
        super().__init__(region.name)
        self.region = region


def _networks(
    ref: ModelRef, found: Partition, digest: str, target: tvm.target.Target, conservative: bool
) -> tuple[list[ShapedNetwork], bool, tuple[str, ...]]:
    networks = []
    notes: tuple[str, ...] = ()
    used: dict[_RegionKey, _LoweredRegion] = {}
    for number, region in enumerate(found.regions):
        alone = extract(found.marked, region, number)
        content = hashlib.sha256(alone.SerializeToString(deterministic=True)).digest()
        key = digest, content, region.name, conservative, str(target)
        try:
            made = _known.get(key) or _lowered(found, region, number, ref.name, digest, target, conservative)
        except ModelError as error:
            _log.info(f"{region.name} ({_some(region.nodes)}) stays with onnxruntime: {error}")
            raise _RegionFailed(region) from error
        used[key] = _known[key] = made
        network, in_fact, notes = made
        if in_fact and not conservative:
            again, _, _ = _networks(ref, found, digest, target, True)
            return again, True, notes
        networks.append(network._replace(ref=ref))
    _known.clear()
    _known.update(used)
    return networks, conservative, notes


class _LoweredRegion(NamedTuple):
    network: ShapedNetwork
    conservative: bool
    notes: tuple[str, ...]


_RegionKey: TypeAlias = "tuple[str, bytes, str, bool, str]"
"""The digests of the whole model and of a region alone, its name, whether it is lowered conservatively, the target."""

_known: dict[_RegionKey, _LoweredRegion] = {}
"""The regions of the model that was prepared last: when it is cut anew, most of them are the same."""


def _lowered(
    found: Partition,
    region: Region,
    number: int,
    name: str,
    digest: str,
    target: tvm.target.Target,
    conservative: bool,
) -> _LoweredRegion:
    model = import_region(found.marked, region, number, name, digest)
    lowered, in_fact, notes = lower_network(model, target, conservative=conservative)
    lowered = lowered._replace(origins=origins(lowered.trail, model))
    combination = Combination(model.inputs, model.outputs, model.checks)
    sources = nodes_of(model, lowered.workloads)
    ref = ModelRef(ONNX, region.name, region.name)
    network = ShapedNetwork(ref, region.name, combination, model.digest, lowered, sources, {})
    return _LoweredRegion(network, in_fact, notes)


def _inputs(marked: ModelProto, of_regions: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """The inputs of the graph, with what the regions know of them."""
    known = {tensor.name: tensor for tensors in of_regions for tensor in tensors}
    demands = onnx_demands(marked)
    found = []
    for value in marked.graph.input:
        declared = value.type.tensor_type
        shape = tuple(extent.dim_value for extent in declared.shape.dim)
        tensor = known.get(value.name)
        if tensor is None:
            dtype = TensorType(declared.elem_type, None).dtype
            tensor = _looked_up(marked, Tensor(value.name, shape, dtype))
        found.append(with_demand(tensor, demands.get(value.name, InputDemand())))
    return tuple(found)


def _looked_up(marked: ModelProto, tensor: Tensor) -> Tensor:
    """An input that onnxruntime reads, with how many entries it chooses from where it is an index of a table."""
    if not tensor.dtype.startswith(("int", "uint")):
        return tensor
    weights = {weight.name: tuple(weight.dims) for weight in marked.graph.initializer}
    for node in marked.graph.node:
        if node.op_type in _LOOKUPS and list(node.input[1:2]) == [tensor.name]:
            shape = weights.get(node.input[0], ())
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            if -len(shape) <= axis < len(shape) and shape[axis]:
                return msgspec.structs.replace(tensor, values="ids", below=int(shape[axis]))
    return tensor


def _tensor(name: str, type_: tuple[str, tuple[int, ...]] | None, kind: str) -> Tensor:
    """An output; extents that depend on the data are -1.  What is no tensor is of a `kind`, and has no extents."""
    return Tensor(name, (), kind) if kind or type_ is None else Tensor(name, type_[1], type_[0])


def _told_choices(inputs: Sequence[Tensor]) -> list[str]:
    """A note on each input whose value decides what is computed."""
    notes = []
    for tensor in inputs:
        if tensor.choices:
            values = " or ".join(f"{value:g}" for value in tensor.choices)
            notes.append(
                f"{tensor.name} decides what is computed: the result takes any value, and was tried with {values};"
                f" --constant {tensor.name}={tensor.choices[0]:g} makes one for that value alone, more of it compiled"
            )
    return notes


def _told(found: Partition) -> str:
    """A note on what runs in onnxruntime."""
    counts = Counter(found.operators)
    told = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_MOST_TOLD))
    rest = len(counts) - _MOST_TOLD
    more = f" and {rest} more operator{'' if rest == 1 else 's'}" if rest > 0 else ""
    if not found.regions:
        return "the whole model runs in onnxruntime"
    regions = (
        "1 region of the graph is" if len(found.regions) == 1 else f"{len(found.regions)} regions of the graph are"
    )
    return f"{regions} compiled; onnxruntime runs {told}{more}"
