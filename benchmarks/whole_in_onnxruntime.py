"""What a result that runs in onnxruntime as a whole costs more a call than onnxruntime itself.

    python benchmarks/whole_in_onnxruntime.py --calls 10000

The network is a Relu of four elements, so that nearly all of the time is the call.  Both run in one process with one
thread; calls alternate, and each pair gives one difference.  Printed are the medians in microseconds, of both and of
the differences, for arrays by name, for a context, and for an array by itself.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import kintune_runtime
from kintune.core.hybrid import Hybrid
from kintune.core.model import Tensor
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.manifest import Manifest

_WARMUPS = 1000


def main() -> None:
    """Times and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "relu.kt")
        graph = write_relu(path)
        session = onnxruntime.InferenceSession(graph, _one_thread(), providers=["CPUExecutionProvider"])
        opened = kintune_runtime.open(path)
        x = np.ones((1, 4), np.float32)
        fed = {"x": x}
        context = opened.context()
        ways: dict[str, Callable[[], Any]] = {
            "run({name: array})": lambda: opened.run(fed),
            "context().run({name: array})": lambda: context.run(fed),
            "run(array)": lambda: opened.run(x),
        }
        for name, run in ways.items():
            ours, theirs, differences = paired(run, lambda: session.run(None, fed), calls)
            print(f"{name:<30} {ours:6.2f} us, onnxruntime {theirs:6.2f} us, difference {differences:5.2f} us")


def write_relu(path: Path) -> bytes:
    """Write a result that leaves a Relu of four elements to onnxruntime; returns its graph."""
    shape = (1, 4)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)])
    content: bytes = model.SerializeToString()
    described = Manifest(
        model_name="relu", model_digest="0" * 32, target="{}", machine="", isa=(), threads=1, chosen={},
        inputs=(Tensor("x", shape, "float32"),), outputs=(Tensor("y", shape, "float32"),),
        created="2026-01-01T00:00:00+00:00", kintune="0", tvm="0", hybrid=Hybrid((), {"Relu": 1}, {}, ()),
    )  # fmt: skip
    write_hybrid(path, described, content, [])
    return content


def paired(ours: Callable[[], Any], theirs: Callable[[], Any], calls: int) -> tuple[float, float, float]:
    """Time both in turns; returns the medians of each and of the differences, in microseconds."""
    clock = time.perf_counter_ns
    times: list[tuple[int, int]] = []
    for number in range(_WARMUPS + calls):
        if number % 2:  # so that no order favours either
            begun = clock()
            ours()
            between = clock()
            theirs()
            times.append((between - begun, clock() - between))
        else:
            begun = clock()
            theirs()
            between = clock()
            ours()
            times.append((clock() - between, between - begun))
    kept = times[_WARMUPS:]
    one, other = (statistics.median(each) / 1e3 for each in zip(*kept, strict=True))
    return one, other, statistics.median(a - b for a, b in kept) / 1e3


def _one_thread() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


if __name__ == "__main__":
    main()
