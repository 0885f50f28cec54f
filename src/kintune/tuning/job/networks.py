"""The networks of one job: one for each combination of the model's shapes, and their subgraphs as one set.

All combinations are equally important: a subgraph occurs as often as in all networks together, and one that several of
them have is tuned once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.provenance import origins
from kintune.compiler.graph.rewriting import CALL_KERNEL, operator_of
from kintune.compiler.graph.source_nodes import nodes_of
from kintune.compiler.graph.workload import StandaloneWorkload, is_tunable
from kintune.compiler.graph.workload_titles import workload_titles
from kintune.compiler.programs.registry import least_flops
from kintune.compiler.space.replay import weight_positions
from kintune.core.candidate import FULL_PRECISION, Sketch, digest_of
from kintune.core.model import Combination, Constant, ModelRef, spell_shapes
from kintune.core.workload import Subgraph
from kintune.errors import ModelError
from kintune.models.importer import load
from kintune.models.model import ImportedModel
from kintune.models.open_shapes import open_shapes
from kintune.partition.partition import Partition
from kintune.runtime.package import Block
from kintune.runtime.tensors import block_of
from kintune.search.sketch_program import by_program, narrow
from kintune.tuning.job.lowering import lower_network
from kintune.tuning.job.open_network import OpenNetwork
from kintune_runtime.library import checksum

__all__ = ["Networks", "PartitionedModel", "ShapedNetwork", "load_networks"]


class PartitionedModel(NamedTuple):
    """A model that runs partly in onnxruntime: its inputs and outputs, and its partitioned graph."""

    digest: str
    combination: Combination
    partition: Partition


class ShapedNetwork(NamedTuple):
    """The network of one combination of shapes, or of one region.

    `ref` names the model with these shapes, `label` tells them from the other combinations' ("32"; "" where there are
    no others).  By the digests of workloads, `nodes` has the user's nodes that each may belong to, and `weights` a text
    that identifies the weights which it reads, if any.
    """

    ref: ModelRef
    label: str
    combination: Combination
    digest: str
    lowered: Lowered
    nodes: dict[str, tuple[str, ...]]
    weights: dict[str, str]


class Networks(NamedTuple):
    """All networks of a job.

    `name` is the model's; the files and `constants` are for others to run (see `ImportedModel`).  `notes`
    has a line on each thing that the user should know; `conservative` says how they were lowered.  `exporter` names
    what has exported a program of PyTorch to the ONNX file; empty where it was imported as it is.

    Of a model that runs partly in onnxruntime, a network is a region of its graph, and `hybrid` has the rest; there may
    be none then.  Otherwise there is one for each combination of shapes.  Where extents are open, it is that of the
    greatest ones, and `opened` is the network for all.
    """

    networks: tuple[ShapedNetwork, ...]
    name: str
    onnx_path: str | None
    exported_path: str | None
    constants: dict[str, Constant]
    conservative: bool
    notes: tuple[str, ...]
    hybrid: PartitionedModel | None = None
    exporter: str = ""
    opened: OpenNetwork | None = None

    @property
    def digest(self) -> str:
        """The digest of the model with all of its combinations of shapes, or its ranges."""
        if self.hybrid is not None:
            return self.hybrid.digest
        digests = [network.digest for network in self.networks]
        if self.opened is not None:
            digests.append(str(sorted(self.opened.shapes.ref.ranges.items())))
        return digests[0] if len(digests) == 1 else digest_of(*(digest.encode() for digest in digests))

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The inputs and outputs of the model, with each combination of its shapes."""
        if self.hybrid is not None:
            return (self.hybrid.combination,)
        return tuple(network.combination for network in self.networks)

    def workloads(self) -> tuple[StandaloneWorkload, ...]:
        """The distinct workloads of all networks, in the order in which they occur first.

        Where there are several networks, a workload that not all of them have is named after the first one that does.
        """
        merged: dict[str, StandaloneWorkload] = {}
        for network in self.networks:
            for workload in network.lowered.workloads:
                known = merged.get(workload.digest)
                if known is None:
                    shared = self.hybrid is not None or all(workload.digest in n.nodes for n in self.networks)
                    merged[workload.digest] = (
                        workload if shared else workload._replace(name=f"{workload.name}@{network.label}")
                    )
                else:
                    merged[workload.digest] = known._replace(occurrences=known.occurrences + workload.occurrences)
        return tuple(merged.values())

    def subgraphs(self, sketches: Sequence[Sketch]) -> tuple[Subgraph, ...]:
        """Returns the workloads as processes without the compiler know them; `sketches` are those of all workloads."""
        tunable = frozenset[str]().union(*(is_tunable(network.lowered.workloads) for network in self.networks))
        counts = [{w.digest: w.occurrences for w in network.lowered.workloads} for network in self.networks]
        workloads = self.workloads()
        titles = workload_titles([network.lowered for network in self.networks], {w.digest: w.name for w in workloads})
        described = []
        for workload in workloads:
            nodes = dict.fromkeys(node for network in self.networks for node in network.nodes.get(workload.digest, ()))
            own = [sketch for sketch in sketches if sketch.workload == workload.digest]
            subgraph = workload.subgraph(
                tunable=workload.digest in tunable,
                sketches=[sketch.digest for sketch in own],
                nodes=tuple(nodes),
                titles=titles[workload.digest],
                narrowest=next(iter(narrow(own).values()), FULL_PRECISION),
                least_flops=least_flops(workload.module, workload.flops, by_program(own)),
            )
            if len(self.combinations) > 1:
                each = tuple(count.get(workload.digest, 0) for count in counts)
                texts = {network.weights.get(workload.digest, "") for network in self.networks}
                weights = "-".join(sorted(texts - {""}))
                subgraph = msgspec.structs.replace(subgraph, each=each, weights=weights)
            described.append(subgraph)
        return tuple(described)


def load_networks(ref: ModelRef, target: tvm.target.Target, *, conservative: bool) -> Networks:
    """Import the model with each combination of its shapes, and lower it.

    Where one of the networks can only be lowered conservatively, all are.

    Raises:
        ModelError: it cannot be imported or lowered; the log has the messages of the compiler.
    """
    networks: list[ShapedNetwork] = []
    notes: tuple[str, ...] = ()
    kept: dict[tuple[int, int], list[tuple[Block, tvm.runtime.Tensor]]] = {}
    refs = ref.each()
    first: ImportedModel | None = None
    for each in refs:
        model = load(each)
        lowered, in_fact, notes = lower_network(model, target, conservative=conservative, any_size=bool(ref.ranges))
        if in_fact and not conservative and len(refs) > 1:
            return load_networks(ref, target, conservative=True)._replace(notes=notes)
        conservative = in_fact
        lowered = lowered._replace(origins=origins(lowered.trail, model))
        first = first or model
        _check_alike(first, model)
        if len(refs) > 1:  # the module, with weights that other networks have as well, is let go
            lowered = lowered._replace(weights=tuple(_kept_once(weight, kept) for weight in lowered.weights))
        label = _label(refs, each) if len(refs) > 1 else ""
        combination = Combination(model.inputs, model.outputs, model.checks)
        nodes = nodes_of(model, lowered.workloads)
        weights = _weights_read(lowered) if len(refs) > 1 else {}
        networks.append(ShapedNetwork(each, label, combination, model.digest, lowered, nodes, weights))
    if first is None:
        raise ModelError(f"{ref.name}: no combination of shapes is named")
    opened = None
    if ref.ranges:
        (network,) = networks
        shapes = open_shapes(ref, first.inputs)
        ranged = msgspec.structs.replace(network.combination, inputs=shapes.ranged(first.inputs))
        opened = OpenNetwork(shapes, ranged, network.lowered, target, conservative)
        networks = [network._replace(combination=ranged)]
        if opened.model is not None:
            lowered = opened.lowered._replace(origins=origins(opened.lowered.trail, opened.model))
            nodes = nodes_of(opened.model, lowered.workloads)
            networks = [network._replace(combination=ranged, lowered=lowered, nodes=nodes)]
    return Networks(
        tuple(networks),
        first.name,
        first.onnx_path,
        first.exported_path,
        first.constants,
        conservative,
        notes,
        opened=opened,
    )


def _check_alike(first: ImportedModel, other: ImportedModel) -> None:
    """Check that two networks have the same inputs and outputs, but for their shapes.

    Raises:
        ModelError: they have not.
    """
    for tensors, others in ((first.inputs, other.inputs), (first.outputs, other.outputs)):
        if [(t.name, t.dtype) for t in tensors] != [(t.name, t.dtype) for t in others]:
            shapes = spell_shapes({tensor.name: tensor.shape for tensor in other.inputs})
            raise ModelError(f"{other.name}: with {shapes} it has other inputs or outputs; tune it by itself")


def _label(refs: Sequence[ModelRef], ref: ModelRef) -> str:
    """The extents that tell a combination of shapes from the others, or its number where that takes many of them."""
    told: list[str] = []
    for name, shape in ref.shapes.items():
        others = [other.shapes[name] for other in refs]
        varying = [at for at in range(len(shape)) if any(len(o) <= at or o[at] != shape[at] for o in others)]
        if varying:
            told.append("x".join(str(shape[at]) for at in varying))
    distinct = list(dict.fromkeys(told))
    return distinct[0] if len(distinct) == 1 else str(refs.index(ref) + 1)


def _kept_once(
    weight: tvm.runtime.Tensor, kept: dict[tuple[int, int], list[tuple[Block, tvm.runtime.Tensor]]]
) -> tvm.runtime.Tensor:
    """Return this weight, or an equal one that another network has."""
    block = block_of(weight)
    alike = kept.setdefault((block.data.nbytes, checksum(block.data)), [])
    for other, tensor in alike:
        same = (other.shape, other.dtype) == (block.shape, block.dtype)
        if same and np.array_equal(other.data, block.data):
            return tensor
    alike.append((block, weight))
    return weight


def _weights_read(lowered: Lowered) -> dict[str, str]:
    """Returns, by digest, a text that identifies the weights of each workload whose layout it may choose."""
    main = lowered.module["main"]
    inputs = len(main.params) - len(lowered.weights)
    texts = {}
    for parameter, weight in zip(main.params[inputs:], lowered.weights, strict=True):
        block = block_of(weight)
        texts[parameter] = f"{block.dtype} {block.shape} {checksum(block.data)}"
    read: dict[str, set[str]] = {}

    def visit(call: relax.Expr) -> None:
        if operator_of(call) != CALL_KERNEL or not isinstance(call.args[1], relax.Tuple):
            return
        name = str(call.args[0].name_hint)
        fields = call.args[1].fields
        for position in weight_positions(lowered.module[name]):
            if position < len(fields) and (text := texts.get(fields[position])) is not None:
                read.setdefault(lowered.functions[name], set()).add(text)

    relax.analysis.post_order_visit(main, visit)
    return {workload: digest_of(*(text.encode() for text in sorted(found))) for workload, found in read.items()}
