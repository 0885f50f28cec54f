"""Layers of DynamicQuantizeLSTM, compiled without tuning, beside onnxruntime.

    python benchmarks/recurrent_bytes.py [--rounds 200] [--threads 2]

The layers have the sizes of those in trained networks (a vocaliser, a recogniser, an embedder of voices).  Both run in
one process and in turns; printed are the medians, the median of the paired ratios, and the largest difference.
Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import kintune as kt


class Layer(NamedTuple):
    """`hidden` units on `features`, over `steps`, in `directions`."""

    hidden: int
    features: int
    steps: int
    directions: int


LAYERS = (
    Layer(64, 48, 40, 1),
    Layer(256, 128, 64, 2),
    Layer(256, 512, 64, 2),
    Layer(512, 512, 24, 2),
    Layer(768, 40, 80, 1),
    Layer(768, 768, 80, 1),
)


def main() -> None:
    """Compile, compare, time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for layer in LAYERS:
            print(f"{layer}: {measured(layer, Path(folder), options.rounds, options.threads)}", flush=True)


def measured(layer: Layer, folder: Path, rounds: int, threads: int) -> str:
    """One layer: medians of both, of the paired ratios, and the largest difference."""
    path, tuned = folder / "layer.onnx", folder / "layer.kt"
    path.write_bytes(model_of(layer).SerializeToString())
    kt.load(str(path)).compile(output=str(tuned), records=str(folder / "records"), threads=threads, onnxruntime=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    opened = kt.open(tuned)
    fed = {"x": np.random.default_rng(0).standard_normal((layer.steps, 1, layer.features)).astype(np.float32)}
    difference = max(
        float(np.abs(ours - theirs).max())
        for ours, theirs in zip(opened.run(fed).values(), session.run(None, fed), strict=True)
    )
    pair: tuple[Callable[[], object], ...] = (lambda: opened.run(fed), lambda: session.run(None, fed))
    times = []
    for number in range(rounds):
        took = [0.0, 0.0]
        for at in (0, 1) if number % 2 else (1, 0):
            begun = time.perf_counter()
            pair[at]()
            took[at] = time.perf_counter() - begun
        times.append(took)
    ours, theirs = (statistics.median(each) * 1e6 for each in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    return f"{ours:.0f} us, onnxruntime {theirs:.0f} us, paired ratio {ratio:.2f}, largest difference {difference:.1g}"


def model_of(layer: Layer) -> ModelProto:
    """The layer as a model, with drawn weights of uint8."""
    random, (hidden, features, steps, directions) = np.random.default_rng(1), layer

    def weight(name: str, rows: int) -> TensorProto:
        return numpy_helper.from_array(random.integers(0, 256, (directions, rows, 4 * hidden)).astype(np.uint8), name)

    def each(name: str, value: Any) -> TensorProto:
        return numpy_helper.from_array(np.full(directions, value), name)

    weights = [
        weight("w", features), weight("r", hidden), each("ws", np.float32(0.004)), each("wz", np.uint8(131)),
        each("rs", np.float32(0.001)), each("rz", np.uint8(121)),
    ]  # fmt: skip
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=hidden, direction=direction
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, features])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, directions, 1, hidden])
    domains = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "layer", [x], [y], weights), opset_imports=domains, ir_version=8)


if __name__ == "__main__":
    main()
