"""Races networks of norms and products with and without norms as prologues, in paired rounds.

python benchmarks/prologues.py [--threads 2] [--rounds 200] [--candidates 6]

Each network is a chain of (RMS norm, product).  Each workload has the quickest of its first candidates.  A line for
each has the ratio of its times without prologues and with them, so above 1 prologues are faster, the interval in which
the median lies with 95 % (bootstrap over rounds), and the ratio of the least times.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper

from kintune.compiler.build import build_candidate
from kintune.compiler.graph import prologues
from kintune.compiler.graph.executable import build_executable, describe_build
from kintune.compiler.graph.lower import lower
from kintune.compiler.programs.registry import applicable
from kintune.compiler.space.replay import save_workload
from kintune.compiler.space.sketches import whole_sketch
from kintune.core.candidate import Candidate, described
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.stage_requests import ProfileContext, ProfileItem
from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.run import Runner
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.runtime.executable import Executable
from kintune.runtime.target import capabilities, resolve_target
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of

NETWORKS = [
    *((rows, size, 4) for rows, size in ((1, 256), (1, 768), (1, 2048), (16, 768), (64, 768))),
    *((rows, size, 32) for rows, size in ((1, 256), (1, 768), (1, 2048), (16, 768))),
]
"""Rows, columns, and bits of the weights; 32 are floats."""

_LAYERS = 6
_RUNS = 20  # of a round
_RESAMPLES = 2000


def write(rows: int, size: int, bits: int, path: Path) -> None:
    """Write the network."""
    draw, nodes, constants, last = np.random.default_rng(0), list[Any](), list[Any](), "x"

    def constant(values: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values), f"c{len(constants)}"))
        return str(constants[-1].name)

    def node(operator: str, *given: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, given, [f"n{len(nodes)}"], domain=domain, **attributes))
        return str(nodes[-1].output[0])

    for _ in range(_LAYERS):
        mean = node("ReduceMean", node("Mul", last, last), axes=[-1])
        root = node("Sqrt", node("Add", mean, constant(np.float32(1e-6))))
        normed = node("Mul", node("Div", last, root), constant(np.ones(size, np.float32) * 1.5))
        if bits > 8:
            weights = (draw.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)
            last = node("MatMul", normed, constant(weights))
            continue
        blocks = -(-size // 32)
        integers = draw.integers(0, 256, (size, blocks, 4 * bits)).astype(np.uint8)
        scales = np.full((size, blocks), 0.01, np.float32)
        attributes = {"K": size, "N": size, "bits": bits, "block_size": 32}
        given = constant(integers), constant(scales)
        last = node("MatMulNBits", normed, *given, domain="com.microsoft", **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def built(path: Path, most_rows: int, threads: int, candidates: int) -> Executable:
    """The network, with norms of at most so many rows as prologues."""
    prologues._MOST_ROWS, prologues._MOST_WEIGHTS = most_rows, 1 << 40
    text = resolve_target("native", threads)
    target, model = tvm.target.Target(json.loads(text)), load(parse_ref(str(path)))
    lowered, can = lower(model.module, target), capabilities(target)
    processor = Processor(can.lanes, can.registers, threads, data_caches(inspect_machine()))
    runner = Runner(choose_cores(threads))
    chosen = {}
    for workload in lowered.workloads:
        saved, times = save_workload(workload.module), dict[float, Any]()
        runner.begin(ProfileContext(MeasurementProtocol(threads=threads, repeats=20, max_seconds=0.2), {}, 0.0, 0.0))
        for program, variant, _ in applicable(workload.module, target):
            sketch = whole_sketch(workload.digest, workload.module, program, variant)
            for decisions in program.rule(workload.module, variant, processor)[:candidates]:
                candidate = Candidate(workload.digest, sketch.digest, decisions)
                made = build_candidate(target, saved, sketch, candidate)
                outcome = runner.profile(ProfileItem(workload.digest, made))
                times[outcome.median_us] = sketch, candidate
        if times:
            sketch, candidate = chosen[workload.digest] = times[min(times)]
            print(f"  {program_of(sketch)} {described(sketch.axes, candidate.decisions)}")
    manifest = describe_build(
        model_name="chain", model_digest="0" * 32, target=text, threads=threads, inputs=model.inputs,
        outputs=model.outputs, chosen={}, sketches=[sketch for sketch, _ in chosen.values()],
    )  # fmt: skip
    place = path.with_suffix(f".{most_rows}.kt")
    build_executable(lowered, chosen, target, manifest).save(place)
    print(f"  {len(lowered.workloads)} workloads, {len(lowered.trail.kernels)} kernels")
    return Executable.open(place)


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=6)
    given = parser.parse_args()
    for rows, size, bits in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chain.onnx"
            write(rows, size, bits, path)
            both = [built(path, most, given.threads, given.candidates) for most in (0, 1 << 20)]
            data = {"x": np.random.default_rng(1).standard_normal((rows, size)).astype(np.float32)}
            first, second = (next(iter(each.run(data).values())) for each in both)
            error = float(np.abs(first - second).max() / np.abs(first).max())
            ratios, least = list[float](), [float("inf")] * 2
            for number in range(given.rounds):
                times = {}
                for at in (0, 1) if number % 2 else (1, 0):
                    start = time.perf_counter()
                    for _ in range(_RUNS):
                        both[at].run(data)
                    times[at] = (time.perf_counter() - start) / _RUNS
                ratios.append(times[0] / times[1])
                least = [min(least[at], times[at]) for at in (0, 1)]
        draws = np.random.default_rng(0).choice(ratios, (_RESAMPLES, len(ratios)))
        low, high = np.percentile(np.median(draws, axis=1), (2.5, 97.5))
        named = f"{rows} x {size}, {bits} bits: {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"
        print(
            f"{named}, of the least {least[0] / least[1]:.3f}, {1e6 * least[1]:.0f} us, error {error:.1e}", flush=True
        )


if __name__ == "__main__":
    main()
