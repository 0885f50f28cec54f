"""What the native runtime costs and gains: latency, overhead, start, memory, throughput, as an operator of onnxruntime.

    python benchmarks/native_runtime.py --silero FILE.onnx [--before CHECKOUT] [--minutes 1] [--only NAME]...

`FILE.onnx` is `silero_vad_op18_ifless.onnx` of the package silero-vad 6.2.3.  `CHECKOUT` is a working tree of Kintune
before results had a runtime of their own; it compiles the same records.  Each network is tuned cold, then the runtimes
take turns, each in a process of its own that is stopped meanwhile, with the same number of threads.  Nothing else
should run.  Results go to `notebook/results/native_runtime.json`, network by network.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from contestants import Contestant, in_turns
from numpy.typing import NDArray
from one_run import tune
from onnx import TensorProto, helper, numpy_helper

from kintune.hardware.cores import physical_cores
from kintune.hardware.cpu import inspect_machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "notebook/results/native_runtime.json"
_ROUNDS = 12
_SILERO = ("--shape", "input=1x576", "--shape", "state=2x1x128", "--constant", "sr=16000")


def _node(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, list(inputs), [output], **attributes)


class _Network:
    """Collects nodes and drawn weights."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, operator: str, source: str, *shapes: tuple[int, ...], **attributes: Any) -> str:
        names = [source]
        for shape in shapes:
            names.append(f"w{len(self.weights)}")
            scale = 1 / np.sqrt(np.prod(shape[1:]) or 1)
            drawn = (scale * self._random.standard_normal(shape)).astype(np.float32)
            self.weights.append(numpy_helper.from_array(drawn, names[-1]))
        output = f"t{len(self.nodes)}"
        self.nodes.append(_node(operator, names, output, **attributes))
        return output

    def save(self, path: Path, shape: tuple[int, ...], output: str, made: tuple[int, ...]) -> None:
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), (output, made))]
        graph = helper.make_graph(self.nodes, path.stem, ends[:1], ends[1:], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_mlp(path: Path) -> None:
    """Two layers: 784 to 256 to 10."""
    network = _Network()
    hidden = network.add("Relu", network.add("Gemm", "x", (784, 256), (256,)))
    network.save(path, (1, 784), network.add("Gemm", hidden, (256, 10), (10,)), (1, 10))


def write_keywords(path: Path) -> None:
    """The depthwise-separable network for keyword spotting of MLPerf Tiny: 49 frames of 10 coefficients, 12 words."""
    network = _Network()
    value = network.add("Conv", "x", (64, 1, 10, 4), (64,), strides=[2, 2], pads=[4, 1, 5, 1])
    value = network.add("Relu", value)
    for _ in range(4):
        value = network.add("Relu", network.add("Conv", value, (64, 1, 3, 3), (64,), group=64, pads=[1, 1, 1, 1]))
        value = network.add("Relu", network.add("Conv", value, (64, 64, 1, 1), (64,)))
    value = network.add("Flatten", network.add("GlobalAveragePool", value))
    value = network.add("Softmax", network.add("Gemm", value, (64, 12), (12,)))
    network.save(path, (1, 1, 49, 10), value, (1, 12))


def write_inputs(path: Path, model: Path) -> None:
    """Inputs for the executable and for the file, the constant of silero's too."""
    from kintune.runtime.inputs import draw_inputs
    from kintune.runtime.package import read_manifest

    arrays: dict[str, NDArray[Any]] = dict(draw_inputs(read_manifest(model).inputs, 0))
    if "state" in arrays:
        arrays["sr"] = np.array(16000)
    np.savez(path, allow_pickle=False, **arrays)


def kintune(*arguments: str, tree: Path = ROOT) -> None:
    """Run the command of a working tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'runtime/src'}"}
    command = [sys.executable, "-m", "kintune", *arguments]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _python(program: str, *arguments: str) -> str:
    """What a program for a new process prints, in which this tree's packages are found."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'runtime/src'}"}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def start_ms(model: Path) -> float:
    """Milliseconds of `import kintune` and `open`, in a new process; the median of nine."""
    program = (
        "import sys, time; begun = time.perf_counter(); import kintune; kintune.open(sys.argv[1]);"
        "print(1e3 * (time.perf_counter() - begun))"
    )
    return statistics.median(float(_python(program, str(model))) for _ in range(9))


def private_bytes(model: Path) -> tuple[int, int]:
    """The bytes of the file, and those that opening and running it once has made this process's own."""
    program = (
        "import re, sys, kintune_runtime\n"
        "from kintune_runtime.inputs import draw_inputs\n"
        "def own(): return sum(map(int, re.findall(r'Private_Dirty: +([0-9]+)', open('/proc/self/smaps').read())))\n"
        "before = own(); model = kintune_runtime.open(sys.argv[1])\n"
        "model.run(draw_inputs(model.described_inputs(), 0))\n"
        "print(1024 * (own() - before))"
    )
    return model.stat().st_size, int(_python(program, str(model)))


def network_over_kernels(model: Path, threads: int) -> float:
    """A run over the sum of its kernels by the runtime's hook, in turns: the median of twelve ratios."""
    import kintune_runtime
    from kintune_runtime.inputs import draw_inputs

    ratios = []
    with kintune_runtime.open(model) as opened:
        inputs = draw_inputs(opened.described_inputs(), 0)
        opened.run(inputs, threads=threads)
        for _ in range(_ROUNDS):
            whole = opened.evaluate(inputs, repeats=_ROUNDS, threads=threads).median_ms
            sums = [sum(call.us for call in opened.profile(inputs, threads=threads)) for _ in range(_ROUNDS)]
            ratios.append(1e3 * whole / statistics.median(sums))
    return statistics.median(ratios)


def throughput(model: Path) -> dict[str, float]:
    """Requests a second of one and of two contexts of one thread, in turns; medians, and their ratio."""
    program = (
        "import sys, kintune_runtime; model = kintune_runtime.open(sys.argv[1])\n"
        "print(model.evaluate(threads=1, streams=int(sys.argv[2]), repeats=1 << 30, max_seconds=2).per_second)"
    )
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(10):
        for streams in (1, 2) if number % 2 else (2, 1):
            rates[streams].append(float(_python(program, str(model), str(streams))))
    one, two = statistics.median(rates[1]), statistics.median(rates[2])
    return {"one": one, "two": two, "ratio": two / one}


def call_us(folder: Path) -> dict[str, float]:
    """Median microseconds of a run of one small model, in turns: its two kernels by the hook, from C, from Python."""
    sys.path[:0] = [str(ROOT)]
    import kintune_runtime
    from tests.support.toy_model import write_model

    toy = write_model(folder / "toy.kt", threads=1)
    program = folder / "calls"
    include, native = ROOT / "runtime/src/kintune_runtime/include", ROOT / "runtime/src/kintune_runtime"
    subprocess.run(
        ["cc", "-O2", f"-I{include}", "-o", str(program), str(ROOT / "benchmarks/native_calls.c"),
         str(native / "libkintune.so"), f"-Wl,-rpath,{native}"],
        check=True,
    )  # fmt: skip
    found: dict[str, list[float]] = {}
    with kintune_runtime.open(toy) as opened, opened.context() as context:
        x = np.zeros(1000, np.float32)
        for _ in range(_ROUNDS):
            hooked = statistics.median(sum(call.us for call in opened.profile(x)) for _ in range(2000))
            done = subprocess.run([str(program), str(toy)], check=True, capture_output=True, text=True)
            taken = {
                "kernels, hooked": hooked,
                "kt_run": float(done.stdout),
                "Context.run": _median_us(lambda: context.run(x)),
                "Executable.run": _median_us(lambda: opened.run(x)),
            }
            for name, us in taken.items():
                found.setdefault(name, []).append(us)
    return {name: statistics.median(each) for name, each in found.items()}


def _median_us(run: Callable[[], object]) -> float:
    times = []
    for _ in range(20000):
        begun = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begun))
    return statistics.median(times)


def library_bytes() -> dict[str, int]:
    """The sizes of the runtime's libraries."""
    return {path.name: path.stat().st_size for path in (ROOT / "runtime/src/kintune_runtime").glob("*.so")}


def measure(name: str, source: str, options: Sequence[str], before: Path | None, minutes: float) -> dict[str, Any]:
    """Tune one network, and time the runtimes in turns."""
    threads = len(physical_cores())
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        report = tune(source, minutes, folder, *options)
        model, inputs = folder / "model.kt", folder / "inputs.npz"
        write_inputs(inputs, model)
        kintune("export", str(model), "--to", "onnx", str(folder / "operator"))
        network = source if source.endswith(".onnx") else _of_zoo(source, folder)
        runtimes: dict[str, tuple[str, Path, Path | None]] = {
            "kintune": ("kintune", model, None),
            "onnxruntime": ("onnxruntime", Path(network), None),
            "operator": ("operator", folder / "operator", None),
        }
        if before is not None:
            old = folder / "before.kt"
            kintune(
                "compile", source, *options, "--records", str(folder / "records.sqlite"), "--output", str(old),
                tree=before,
            )  # fmt: skip
            runtimes["before"] = ("kintune", old, before)
        with ExitStack() as processes:
            contestants = {
                name: processes.enter_context(Contestant(kind, file, inputs, threads, tree))
                for name, (kind, file, tree) in runtimes.items()
            }
            medians = in_turns(contestants)
        found: dict[str, Any] = {
            "threads": threads,
            "median_ms": {who: statistics.median(times) for who, times in medians.items()},
            "medians_ms": medians,
            "kernels_ms": report["kernels_ms"],
            "network_over_kernels": network_over_kernels(model, threads),
            "start_ms": start_ms(model),
            "file_bytes": model.stat().st_size,
            "private_bytes": private_bytes(model)[1],
        }
        if name == "mobilenet_v2":
            found["throughput"] = throughput(model)
            found["call_us"] = call_us(folder)
            found["library_bytes"] = library_bytes()
    return found


def _of_zoo(source: str, folder: Path) -> str:
    """The ONNX file of a network of the zoo."""
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    path = load(parse_ref(source, [])).onnx_path
    if path is None:
        raise SystemExit(f"{source} has no ONNX file")
    return str(path)


def main() -> None:
    """Measure, and write after each network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--silero", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        mlp, keywords = Path(made, "mlp.onnx"), Path(made, "keywords.onnx")
        write_mlp(mlp)
        write_keywords(keywords)
        networks: dict[str, tuple[str, Sequence[str]]] = {"mlp": (str(mlp), ()), "keywords": (str(keywords), ())}
        if arguments.silero:
            networks["silero"] = (str(arguments.silero.resolve()), _SILERO)
        networks |= {name: (f"zoo:{name}", ()) for name in ("mobilenet_v2", "resnet18", "resnet50", "bert_base")}
        for name, (source, options) in networks.items():
            if arguments.only and name not in arguments.only:
                continue
            found = measure(name, source, options, arguments.before, arguments.minutes)
            results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            where = {"cpu": inspect_machine().cpu, "date": datetime.date.today().isoformat()}
            results.setdefault("networks", {})[name] = {**where, **found}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            times = found["median_ms"]
            print(
                name,
                *(f"{who} {ms:.4f}" for who, ms in times.items()),
                f"kernels {found['kernels_ms']:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
