"""Returns regions of a hybrid result, or a whole network, to onnxruntime.  Does not import TVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
from onnx import ModelProto, helper

from kintune.core.hybrid import Hybrid, Region
from kintune.core.model import Constant, spell_shapes
from kintune.errors import InputError
from kintune.models.constants import constant_values
from kintune.models.graph_file import open_graph
from kintune.models.onnx_nodes import describe_node, nodes, operator_name
from kintune.partition.composition import compose, extract, region_operator
from kintune.partition.shape_choice import choose_by_shape
from kintune.runtime.hybrid_package import HybridPackage, operator_domain, read_marked, region_name, write_hybrid
from kintune.runtime.manifest import Manifest, read_manifest
from kintune.runtime.package import write_with_thread_counts
from kintune.runtime.stored_zip import folder_beside

__all__ = [
    "LOST",
    "hand_over_all",
    "hand_over_plans",
    "keep_regions",
    "limit_region_threads",
    "original_model",
    "whole_as_region",
    "write_region",
]

LOST = "onnxruntime is at least as fast here"

_MOST_BYTES = (1 << 31) - 1  # of an ONNX graph with its weights


def keep_regions(
    source: Path,
    kept: Sequence[int] | None,
    output: Path,
    onnx: Path | None = None,
    constants: Mapping[str, Constant] | None = None,
    why: str = LOST,
) -> None:
    """Publish a hybrid result: write it with the regions of these numbers alone (None: all) to `output`.

    `output` may be `source`.  `onnx` is the model's file, which the result runs for other shapes if it takes these, and
    `constants` has those of its inputs that became constants.  `why` is the reason why the other regions go back to
    onnxruntime.  The marked graph, which only an unpublished result has, is left out.

    Raises:
        InputError: when the file cannot be read or written, or regions of a published result would change.
    """
    package = HybridPackage.open(source)
    hybrid = package.manifest.hybrid
    if hybrid is None:
        raise InputError(f"{source}: has no regions")
    text = read_marked(source)
    numbers = range(len(hybrid.regions))
    kept = numbers if kept is None else kept
    if not text:
        if tuple(kept) != tuple(numbers):
            raise InputError(f"{source}: is published, its regions cannot be changed; tune the model again")
        graph, about = package.graph, hybrid
    else:
        marked = ModelProto.FromString(text)
        composed = compose(marked, hybrid.regions, kept, package.manifest.model_digest)
        if hybrid.other_shapes and onnx is not None:
            shapes = [each.shapes for each in package.manifest.combinations]
            composed = choose_by_shape(original_model(onnx, constants or {}), composed, shapes)
        graph = composed.SerializeToString()
        lost = [hybrid.regions[number] for number in numbers if number not in kept]
        counts = Counter(hybrid.operators)
        for number in numbers:
            if number not in kept:
                counts.update(map(operator_name, nodes(extract(marked, hybrid.regions[number], number))))
        about = msgspec.structs.replace(
            hybrid,
            regions=tuple(hybrid.regions[number] for number in kept),
            operators=dict(counts.most_common()),
            nodes={**hybrid.nodes, **{node: why for region in lost for node in region.nodes}},
        )
    manifest = msgspec.structs.replace(package.manifest, hybrid=about)
    write_hybrid(output, manifest, graph, [package.region(number) for number in kept])


def write_region(source: Path, number: int, executable: Path, graph: Path) -> None:
    """Write a region of an unpublished result by itself: as an executable, and as the ONNX model of the same nodes.

    Raises:
        InputError: when the file cannot be read, has no regions, or is published.
    """
    package = HybridPackage.open(source)
    text = read_marked(source)
    if package.manifest.hybrid is None or not text:
        raise InputError(f"{source}: has no regions that can be taken apart")
    executable.write_bytes(package.region(number))
    model = extract(ModelProto.FromString(text), package.manifest.hybrid.regions[number], number)
    graph.write_bytes(model.SerializeToString())


def limit_region_threads(source: Path, counts: Sequence[Mapping[int, int]], output: Path) -> None:
    """Write a result to `output`, which may be `source`, with new limits for the threads of kernel calls.

    `counts` has, for each region in order, the limits of its first plan: place of a call in the plan -> threads.

    Raises:
        InputError: when the file cannot be read or written, or has no regions.
    """
    package = HybridPackage.open(source)
    with folder_beside(output, "kintune-regions-") as directory:
        files = []
        for number, of_region in enumerate(counts):
            files.append(Path(directory, region_name(number)))
            files[-1].write_bytes(package.region(number))
            write_with_thread_counts(files[-1], files[-1], (of_region,))
        write_hybrid(output, package.manifest, package.graph, files, marked=read_marked(source))


def hand_over_all(
    source: Path,
    onnx: Path,
    constants: Mapping[str, Constant],
    output: Path,
    why: str = LOST,
    *,
    fixed: bool = False,
) -> None:
    """Write a result that runs the ONNX file `onnx` in onnxruntime, in place of the executable `source`.

    `constants` has the inputs of the file that became constants.  With `fixed`, the names of its extents stand for the
    shapes of `source`, unless the result takes other shapes as well.

    Raises:
        InputError: when a file cannot be read or written, or the model is larger than one ONNX file can be.
    """
    graph = original_model(onnx, constants)
    counts = Counter(map(operator_name, nodes(graph)))
    before = read_manifest(source)
    hybrid = Hybrid(
        (),
        dict(counts.most_common()),
        {"all nodes": why},
        (version("onnxruntime"),),
        other_shapes=before.hybrid is not None and before.hybrid.other_shapes,
        fixed=fixed,
    )
    manifest = msgspec.structs.replace(before, hybrid=hybrid, checks=(), narrow=None)
    write_hybrid(output, manifest, graph.SerializeToString(), [])


def hand_over_plans(
    source: Path, kept: Sequence[int], onnx: Path, constants: Mapping[str, Constant], output: Path, why: str = LOST
) -> None:
    """Write a result that runs some combinations of shapes as the compiled `source` does, the others in onnxruntime.

    `kept` has the numbers of the former.  `source` is a result in which a whole network is compiled.  `onnx` and
    `constants` are as for `hand_over_all`.

    Raises:
        InputError: when a file cannot be read or written, or the model is larger than one ONNX file can be.
    """
    manifest = read_manifest(source)
    before = manifest.hybrid
    plain = source.read_bytes() if before is None else HybridPackage.open(source).region(0)
    original = original_model(onnx, constants)
    region, tuned = whole_as_region(original, manifest)
    shapes = [each.shapes for each in manifest.combinations]
    graph = choose_by_shape(original, tuned, [shapes[number] for number in kept])
    counts = Counter(map(operator_name, nodes(original)))
    lost = [f"all nodes, with {spell_shapes(each)}" for number, each in enumerate(shapes) if number not in kept]
    hybrid = Hybrid(
        (region,),
        dict(counts.most_common()),
        {**({} if before is None else before.nodes), **dict.fromkeys(lost, why)},
        (version("onnxruntime"),),
        other_shapes=before is not None and before.other_shapes,
        plans=tuple(kept),
    )
    described = msgspec.structs.replace(manifest, hybrid=hybrid)
    write_hybrid(output, described, graph.SerializeToString(), [plain])


def original_model(onnx: Path, constants: Mapping[str, Constant], *, own: bool = True) -> ModelProto:
    """The model in an ONNX file, including its weights, with the inputs named in `constants` turned into weights.

    `own` says that it is the user's own file, whose weights may lie in other files.

    Raises:
        InputError: when it cannot be read, or is larger than one ONNX file can be.
    """
    opened = open_graph(onnx, own=own).bound({name: constant_values(each) for name, each in constants.items()})
    size = opened.graph.ByteSize() + sum(values.nbytes for values in opened.weights.values())
    if size > _MOST_BYTES:
        raise InputError(f"{onnx}: with {size >> 20} MiB it is too large to go into one file with a graph")
    return opened.assemble()


def whole_as_region(original: ModelProto, manifest: Manifest) -> tuple[Region, ModelProto]:
    """The region that is the whole model, and a graph whose only node is this region."""
    inputs, outputs = (tuple(t.name for t in tensors) for tensors in (manifest.inputs, manifest.outputs))
    nodes = tuple(dict.fromkeys(describe_node(node) for node in original.graph.node))
    region = Region("kintune/region0", nodes, inputs, outputs)
    domain = operator_domain(manifest.model_digest)
    made = ModelProto(ir_version=original.ir_version)
    made.opset_import.extend(original.opset_import)
    made.opset_import.append(helper.make_opsetid(domain, 1))
    made.graph.node.append(helper.make_node(region_operator(0), inputs, outputs, region.name, domain=domain))
    made.graph.input.extend(original.graph.input)
    made.graph.output.extend(original.graph.output)
    return region, made
