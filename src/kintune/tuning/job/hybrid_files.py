"""Writes results that run partly in onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from kintune.core.config import JobSpec
from kintune.core.hybrid import Hybrid
from kintune.errors import OrderError
from kintune.models.onnx_nodes import nodes
from kintune.partition.composition import compose
from kintune.partition.keeping import original_model, whole_as_region
from kintune.partition.partition import Partition
from kintune.partition.shape_choice import choose_by_shape
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.manifest import Manifest
from kintune.tuning.job.networks import Networks

__all__ = ["take_other_shapes", "write_partitioned"]

OTHER_SHAPES = "with inputs of shapes that were not tuned"


def write_partitioned(
    path: str,
    manifest: Manifest,
    networks: Networks,
    partition: Partition,
    files: Sequence[Path],
    spec: JobSpec,
    precisions: Sequence[dict[str, int]],
) -> None:
    """Write the regions in `files`, with the graph around them, to `path`; `manifest` is the whole model's.  What each
    region computes in is in `precisions`, as in `Region`.

    Raises:
        InputError: the graph is too large.
        StorageError: the file cannot be written.
    """
    open_shapes = spec.options.other_shapes == "onnxruntime"
    regions = tuple(
        msgspec.structs.replace(region, precisions=counts)
        for region, counts in zip(partition.regions, precisions, strict=True)
    )
    tried = (version("onnxruntime"),)
    hybrid = Hybrid(regions, partition.operators, partition.reasons, tried, other_shapes=open_shapes)
    graph = compose(partition.marked, partition.regions, range(len(files)), networks.digest)
    if open_shapes:
        original = original_model(Path(str(networks.onnx_path)), networks.constants)
        graph = choose_by_shape(original, graph, [each.shapes for each in networks.combinations])
    described = msgspec.structs.replace(manifest, hybrid=hybrid)
    write_hybrid(path, described, graph.SerializeToString(), files, marked=partition.marked.SerializeToString())


def take_other_shapes(path: str, manifest: Manifest, networks: Networks, precisions: dict[str, int]) -> None:
    """Turn the executable of a whole network into one that runs inputs of other shapes in onnxruntime.

    What the network computes in is in `precisions`, as in `Region`.

    Raises:
        InputError: the model is too large for that.
        StorageError: the file cannot be written.
        OrderError: the model is no ONNX file.
    """
    if networks.onnx_path is None:
        raise OrderError(f"{networks.name} is no ONNX file")
    original = original_model(Path(networks.onnx_path), networks.constants)
    region, tuned = whole_as_region(original, manifest)
    region = msgspec.structs.replace(region, precisions=precisions)
    graph = choose_by_shape(original, tuned, [each.shapes for each in networks.combinations])
    counts = Counter(node.op_type for node in nodes(original))
    hybrid = Hybrid(
        (region,), dict(counts.most_common()), {"all nodes": OTHER_SHAPES}, (version("onnxruntime"),), other_shapes=True
    )
    described = msgspec.structs.replace(manifest, hybrid=hybrid)
    write_hybrid(path, described, graph.SerializeToString(), [Path(path).read_bytes()])
