"""What a call of a region from onnxruntime costs: a row of tiny regions, against the same row of ordinary nodes.

    python benchmarks/region_boundary.py [--regions 20] [--elements 16] [--threads 1 2] [--rounds 60] [--json FILE]

Three networks take turns in one process: Relu and a region that adds, by turns; the same with Add nodes; and the Relus
alone.  The cost of a boundary is what a region takes more than nothing, its kernel included.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import TensorProto, helper, numpy_helper

from kintune.compiler.graph.executable import build_executable, describe_build
from kintune.compiler.graph.lower import lower
from kintune.core.hybrid import Hybrid, Region
from kintune.hardware.cpu import inspect_machine
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.runtime.executable import Executable
from kintune.runtime.hybrid_executable import HybridExecutable
from kintune.runtime.hybrid_package import operator_domain
from kintune.runtime.manifest import Manifest
from kintune.runtime.target import resolve_target

_OPSET = helper.make_opsetid("", 17)
_RUNS = 200  # of a network in its turn


def main() -> None:
    """Measure, print, and write the results where `--json` says."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="kintune-boundary-") as folder:
        made = _networks(Path(folder), options.regions, options.elements)
        x = np.linspace(-1, 1, options.elements, dtype=np.float32)
        for other in ("regions", "nodes"):
            np.testing.assert_allclose(made[other].run({"x": x})["out"], _sum_of(x, options.regions), rtol=1e-6)
        measured = {threads: _measure(made, {"x": x}, threads, options) for threads in options.threads}
    for threads, found in measured.items():
        print(
            f"{threads} thread{'s' if threads > 1 else ''}: a region costs {found['us_per_region']:.2f} us a call,"
            f" a node of onnxruntime {found['us_per_node']:.2f} us"
        )
    if options.json:
        document = {
            "cpu": inspect_machine().cpu, "onnxruntime": onnxruntime.__version__, "regions": options.regions,
            "elements": options.elements, "by_threads": {str(threads): each for threads, each in measured.items()},
        }  # fmt: skip
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")


def _sum_of(x: np.ndarray, count: int) -> np.ndarray:
    """What the row computes: each region adds one, each Relu cuts off what is below zero."""
    for _ in range(count):
        x = np.maximum(x, 0) + np.float32(1)
    return x


def _measure(
    made: dict[str, HybridExecutable], inputs: dict[str, Any], threads: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Medians of the rounds in microseconds a run, and what follows from them for one region and one node."""
    rounds: dict[str, list[float]] = {name: [] for name in made}
    names = list(made)
    for model in made.values():
        _turn(model, inputs, threads)
    for number in range(options.rounds):
        for name in names[number % 3 :] + names[: number % 3]:
            rounds[name].append(_turn(made[name], inputs, threads))
    medians = {name: statistics.median(times) for name, times in rounds.items()}
    return {
        "us_per_region": (medians["regions"] - medians["none"]) / options.regions,
        "us_per_node": (medians["nodes"] - medians["none"]) / options.regions,
        "run_us": medians,
        "run_us_p10": {name: float(np.quantile(times, 0.1)) for name, times in rounds.items()},
        "run_us_p90": {name: float(np.quantile(times, 0.9)) for name, times in rounds.items()},
    }


def _turn(model: HybridExecutable, inputs: dict[str, Any], threads: int) -> float:
    """Microseconds of a run, the mean of one turn."""
    begun = time.perf_counter()
    for _ in range(_RUNS):
        model.run(inputs, threads=threads)
    return (time.perf_counter() - begun) * 1e6 / _RUNS


def _networks(folder: Path, count: int, elements: int) -> dict[str, HybridExecutable]:
    region = _region(folder, elements)
    described = region.manifest
    region.save(folder / "region.kt")
    told = tuple(Region(f"region{n}", (f"add{n}",), (f"cut{n}",), (f"added{n}",)) for n in range(count))
    nothing = msgspec.structs.replace(described, hybrid=Hybrid((), {}, {}, ()))
    regions = msgspec.structs.replace(described, hybrid=Hybrid(told, {"Relu": count}, {}, ()))
    return {
        "regions": HybridExecutable.create(regions, _row(regions, elements, count), [folder / "region.kt"] * count),
        "nodes": HybridExecutable.create(nothing, _row(nothing, elements, count), []),
        "none": HybridExecutable.create(nothing, _row(nothing, elements, count, adding=False), []),
    }


def _row(manifest: Manifest, elements: int, count: int, adding: bool = True) -> bytes:
    """The host graph: Relu and an addition by turns, as regions where the manifest has them."""
    domain = operator_domain(manifest.model_digest)
    nodes, last = [], "x"
    for n in range(count):
        added = "out" if n == count - 1 else f"added{n}"
        if not adding:
            nodes.append(helper.make_node("Relu", [last], [added], f"relu{n}"))
        else:
            nodes.append(helper.make_node("Relu", [last], [f"cut{n}"], f"relu{n}"))
            if manifest.hybrid is not None and manifest.hybrid.regions:
                nodes.append(helper.make_node(f"Region{n}", [f"cut{n}"], [added], f"region{n}", domain=domain))
            else:
                nodes.append(helper.make_node("Add", [f"cut{n}", "one"], [added], f"add{n}"))
        last = added
    return _model(nodes, "x", "out", elements, domain).SerializeToString()  # type: ignore[no-any-return]


def _region(folder: Path, elements: int) -> Executable:
    """An addition, compiled with the default schedule."""
    path = folder / "region.onnx"
    onnx.save(_model([helper.make_node("Add", ["x", "one"], ["out"], "add")], "x", "out", elements), path)
    text = resolve_target("native", threads=2)
    target = tvm.target.Target(json.loads(text))
    loaded = load(parse_ref(str(path)))
    described = describe_build(
        model_name="boundary", model_digest="b0" * 16, target=text, threads=2, inputs=loaded.inputs,
        outputs=loaded.outputs, chosen={},
    )  # fmt: skip
    made = build_executable(lower(loaded.module, target), {}, target, described)
    assert isinstance(made, Executable)
    return made


def _model(nodes: list[Any], first: str, last: str, elements: int, domain: str = "") -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [elements]) for name in (first, last)]
    ones = numpy_helper.from_array(np.ones(elements, np.float32), "one")
    used = any("one" in node.input for node in nodes)
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], [ones] if used else [])
    opsets = [_OPSET, *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", type=int, default=20)
    parser.add_argument("--elements", type=int, default=16)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", default="")
    return parser.parse_args()


if __name__ == "__main__":
    main()
