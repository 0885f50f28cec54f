"""Finds the node because of which a model that runs partly in onnxruntime fails."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import tvm
from onnx import ModelProto, ValueInfoProto

from kintune.core.config import JobSpec
from kintune.core.hybrid import Region
from kintune.models.constants import constant_values
from kintune.models.evaluation import open_session
from kintune.partition.composition import extract, unmarked
from kintune.partition.import_region import import_region
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.runtime.inputs import Array, draw_inputs, load_fitting, load_inputs
from kintune.tuning.job.explanation import first_difference, first_uncompilable, is_right
from kintune.tuning.job.networks import Networks, PartitionedModel

__all__ = ["first_wrong_node"]


def first_wrong_node(networks: Networks, hybrid: PartitionedModel, spec: JobSpec) -> str:
    """Return the first node of a region that cannot be compiled or computes something else, as messages name it.

    Each region runs on what onnxruntime computes for its inputs, as it was prepared; those that are wrong then are
    imported by themselves, and bisected.  If the node cannot be told, it is a node of the first
    region that is wrong; empty if no region is.
    """
    target = tvm.target.Target(json.loads(spec.device_type.target))
    paths = [path for path in spec.input_files if load_fitting(networks.combinations, path)[0] == 0]
    tensors, seed = hybrid.combination.inputs, spec.options.seed
    inputs = load_inputs(paths[0]) if paths else draw_inputs(tensors, seed)
    extremes = extreme_inputs(tensors, seed, given=inputs, keep_integers=True)
    constants = {name: constant_values(constant) for name, constant in networks.constants.items()}
    for tried in (inputs, *(each.arrays for each in extremes if each.tells_everything)):
        if culprit := _first_wrong(networks, hybrid, target, tried | constants):
            return culprit
    return ""


def _first_wrong(
    networks: Networks, hybrid: PartitionedModel, target: tvm.target.Target, inputs: Mapping[str, Array]
) -> str:
    partition = hybrid.partition
    names = dict.fromkeys(name for region in partition.regions for name in (*region.inputs, *region.outputs))
    expected = _tensors(unmarked(partition.marked), inputs, names)
    for number, (region, network) in enumerate(zip(partition.regions, networks.networks, strict=True)):
        is_known = all(name in expected for name in (*region.inputs, *region.outputs))
        values = [expected[tensor.name] for tensor in network.combination.inputs] if is_known else []
        wanted = [expected[name] for name in region.outputs] if is_known else []
        if is_known and is_right(network.lowered, target, values, region.outputs, wanted):
            continue  # as it was prepared
        model = import_region(partition.marked, region, number, networks.name, hybrid.digest)
        if culprit := first_uncompilable(model, target):
            return _known(culprit, region)
        if not is_known:
            continue  # it is in the body of a node, whose tensors onnxruntime does not return
        own = {name: expected[name] for name in region.inputs}
        alone = extract(partition.marked, region, number)
        inside = _tensors(alone, own, [name for node in alone.graph.node for name in node.output if name])
        if culprit := first_difference(model, target, own, inside):
            return _known(culprit, region)
    return ""


def _known(culprit: str, region: Region) -> str:
    return culprit if culprit in region.nodes else region.nodes[0]


def _tensors(model: ModelProto, inputs: Mapping[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """Return those of the named tensors that onnxruntime computes in the graph, or is given; none where it cannot."""
    found = {name: inputs[name] for name in names if name in inputs}
    given = {value.name for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in names if name in made]
    model.graph.output.extend(ValueInfoProto(name=name) for name in wanted if name not in given)
    try:
        session = open_session(model)
        taken = {value.name: inputs[value.name] for value in session.get_inputs()}
        return found | dict(zip(wanted, session.run(wanted, taken), strict=True))
    except Exception:  # only the name in the message is missing then
        return found
