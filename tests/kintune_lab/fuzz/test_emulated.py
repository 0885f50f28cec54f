"""Drawn quantised graphs, compiled for the instructions of Arm that multiply bytes, are right in an emulator.

So is a network in bf16.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from kintune.core.model import Tensor
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of
from kintune_lab.fuzz.compiling import Chosen, Compiler, CompileWay, ways_of
from kintune_lab.fuzz.onnx_graphs import OnnxGraphs
from kintune_lab.fuzz.trial import Trial
from kintune_lab.fuzz.verdict import FAULTS, VerdictKind
from tests.support.emulator import FEATURES, FOR_AARCH64, run_emulated
from tests.support.quantised import chosen_by_rule

pytestmark = [pytest.mark.tvm, pytest.mark.needs("ziglang", "qemu-aarch64", "aarch64-linker")]

ROOT = Path(__file__).parents[3]
CPUS = {"sdot": "cortex-a76 -mtriple=aarch64-linux-gnu", "usdot": "cortex-a76 -mtriple=aarch64-linux-gnu -mattr=+i8mm"}


class _Emulated:
    """An executable for aarch64, which runs in an emulator, in a folder with the program that runs it."""

    def __init__(self, executable: Any, folder: Path) -> None:
        self.inputs: Sequence[Tensor] = executable.inputs
        self._outputs: Sequence[Tensor] = executable.outputs
        self._folder = folder
        executable.save(folder / "model.kt")

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        for at, tensor in enumerate(self.inputs):
            (self._folder / f"in0_{at}").write_bytes(np.ascontiguousarray(feeds[tensor.name]).tobytes())
        command: list[str | Path] = ["./run_sets", "model.kt", ".", "1"]
        done = run_emulated(command, self._folder, f"{FEATURES} bf16 i8mm", "max")
        assert done.returncode == 0, done.stderr
        read = {tensor.name: (self._folder / f"out0_{at}").read_bytes() for at, tensor in enumerate(self._outputs)}
        return {
            tensor.name: np.frombuffer(read[tensor.name], tensor.dtype).reshape(tensor.shape)
            for tensor in self._outputs
        }


class _ForArm(Compiler):
    def __init__(self, target: str, folder: Path) -> None:
        super().__init__(target)
        self._folder = folder

    def build(self, model: Any, lowered: Any, chosen: Chosen, *, keep_denormals: bool = False) -> Any:
        executable = super().build(model, lowered, chosen, keep_denormals=keep_denormals)
        return _Emulated(executable, self._folder)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runtime for aarch64, and a program that runs networks on files."""
    folder = tmp_path_factory.mktemp("emulated")
    compiler = [*FOR_AARCH64[:-1], "-s"]
    library = [sys.executable, str(ROOT / "runtime" / "build_library.py"), str(folder / "libkintune.so")]
    subprocess.run(library, env={**os.environ, "CC": shlex.join(compiler)}, check=True)
    source = [str(ROOT / "tests" / "support" / "run_sets.c"), f"-I{ROOT / 'runtime/src/kintune_runtime/include'}"]
    linked = ["-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "run_sets"]
    subprocess.run([*FOR_AARCH64, *source, *linked], cwd=folder, check=True)
    return folder


def _campaign(folder: Path, graphs: int, seed: int) -> Counter[str]:
    first = ways_of("quantised")[0]
    arm = [CompileWay(name, _ForArm(f"llvm -mcpu={cpu}", folder), first.choose) for name, cpu in CPUS.items()]
    trial = Trial(OnnxGraphs(seed, quantised=True), [first, *arm], seed)
    programs: Counter[str] = Counter()
    for number in range(graphs):
        verdict = trial.try_model(number)
        assert verdict.kind not in FAULTS, (number, verdict)
        programs.update(verdict.programs if verdict.kind is VerdictKind.RIGHT else ())
    return programs


def test_a_network_in_bf16(emulator: Path, tmp_path: Path) -> None:
    """A convolution and a product by `bfdot`, of sizes that fill neither vectors nor panels."""
    import tvm

    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    draw = np.random.default_rng(5)
    x, filters, weights = (
        draw.standard_normal(shape, np.float32) for shape in ((1, 13, 14, 15), (24, 13, 3, 3), (15, 37))
    )
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MatMul", ["r", "weights"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", x.shape), ("y", (1, 24, 14, 37)))]
    stored = [numpy_helper.from_array(filters, "filters"), numpy_helper.from_array(weights, "weights")]
    graph = helper.make_graph(nodes, "narrow", ends[:1], ends[1:], stored)
    path, text = tmp_path / "narrow.onnx", "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu -mattr=+bf16"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    model, compiler = load(parse_ref(str(path))), _ForArm(text, emulator)
    network, target = compiler.lower(model), tvm.target.Target(json.loads(resolve_target(text, 1)))
    machine = Processor(lanes=4, registers=32)
    programs = chosen_by_rule(network, target, "narrow", machine, frozenset({"bf16"}))
    assert [program_of(sketch).partition(":")[2] for sketch, _ in programs.values()] == ["bfdot"] * 2
    found = compiler.build(model, network, Chosen(programs)).run({"x": x})["y"]
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < 8e-3


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_drawn_graphs(emulator: Path) -> None:
    programs = _campaign(emulator, 100, 57)
    assert all(any(name.endswith(f":{variant}") for name in programs) for variant in CPUS)
