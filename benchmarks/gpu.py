"""What a GPU tells of tuned networks: Kintune, the stock tuner and PyTorch, each timed on the same GPU in turns.

    python benchmarks/gpu.py resnet50 --minutes 2 --stock-minutes 2 --out FOLDER

Kintune tunes as a user would, cold.  The stock tuner has its defaults, and its best programs are compiled into the
same lowered network as Kintune's.  PyTorch computes the same layers with its own libraries, in fp32 without TF32
(as Kintune does), and with TF32 to show what that gains.  `host` times take inputs from the host's memory and leave
outputs there, as an application would; `device` times leave both on the GPU.  Writes FOLDER/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from one_run import tune

ROUNDS = 7
RUNS = 20


def main() -> None:
    """Tunes, then times in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=["resnet50", "bert_base"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--stock-minutes", type=float, default=0.0, help="0: without the stock tuner")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"network": options.network, "minutes": options.minutes}
    print("kintune", flush=True)
    began = time.perf_counter()
    report = tune(f"zoo:{options.network}", options.minutes, folder, "--device", "cuda")
    facts["tune_s"] = time.perf_counter() - began
    facts["report"] = report
    write(folder, facts)
    sides = kintune_sides("kintune", folder / "model.kt")
    if options.stock_minutes:
        print("stock", flush=True)
        try:
            facts["stock"] = tune_stock(options.network, options.stock_minutes, folder)
            sides |= kintune_sides("stock", folder / "stock.kt")
        except Exception:  # the rest is worth measuring without it
            traceback.print_exc()
        write(folder, facts)
    print("PyTorch", flush=True)
    sides |= torch_sides(options.network)
    facts["ms"] = in_turns(sides)
    write(folder, facts)
    for name, times in facts["ms"].items():
        print(f"{name:28s} {statistics.median(times):8.3f} ms  ({min(times):.3f} to {max(times):.3f})")


def write(folder: Path, facts: dict[str, Any]) -> None:
    """Writes FOLDER/NAME.json, after each step: the machine may be taken away before the last."""
    (folder / f"{facts['network']}.json").write_text(json.dumps(facts, indent=1))


def in_turns(sides: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Milliseconds of a run of each side: the median of `RUNS` runs, in each of `ROUNDS` rounds, in turns."""
    for side in sides.values():
        for _ in range(3):
            side()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            taken = []
            for _ in range(RUNS):
                began = time.perf_counter()
                side()
                taken.append(time.perf_counter() - began)
            times[name].append(statistics.median(taken) * 1e3)
    return times


def kintune_sides(name: str, path: Path) -> dict[str, Callable[[], None]]:
    """Runs of an executable: with inputs and outputs on the host, and on the device alone."""
    import tvm

    import kintune

    executable: Any = kintune.open(path)
    arrays = random_inputs({t.name: (t.shape, t.dtype) for t in executable.inputs})
    executable.run(arrays)
    main = executable._main
    device = tvm.cuda(0)
    placed = executable._placement
    arguments = [placed._argument(p, t, arrays[t.name]) for p, t in enumerate(executable.inputs)]

    def on_device() -> None:
        main(*arguments, *placed._weights)
        device.sync()

    def on_host() -> None:
        executable.run(arrays)

    return {f"{name} host": on_host, f"{name} device": on_device}


def random_inputs(tensors: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Random values for inputs, by name; ones for integers."""
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape, np.float32) if dtype == "float32" else np.ones(shape, dtype)
        for name, (shape, dtype) in tensors.items()
    }


def tune_stock(network: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Tune with the stock tuner for some minutes, and compile its best programs to FOLDER/stock.kt."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.executable import describe_build
    from kintune.compiler.graph.lower import lower
    from kintune.core.model import ModelRef
    from kintune.models.importer import load
    from kintune.runtime.cuda_codegen import compiling_for, load_runtime
    from kintune.runtime.target import resolve_target
    from kintune.runtime.vm_executable import VmExecutable
    from kintune_lab.tuners.measurement import StockTools
    from kintune_lab.tuners.setup import SharedSetup
    from kintune_lab.tuners.stock_tuner import StockTuner

    canonical = resolve_target("cuda", 1)
    target = tvm.target.Target(json.loads(canonical))
    imported = load(ModelRef("zoo", network, network))
    with compiling_for(target):
        setup = SharedSetup(imported, lower(imported.module, target), target, canonical, 1)
        tasks = len(ms.relax_integration.extract_tasks(setup.lowered.module, target, {}))
    tools = StockTools(
        lambda _threads: ms.Builder.create("local", initializer=load_runtime),
        lambda: ms.Runner.create("local", initializer=load_runtime),
    )
    tuner = StockTuner(setup, folder / "stock", 1000 * tasks, 0, tools=tools)
    best: dict[str, Any] = {}
    sketches: dict[str, Any] = {}
    trials = failures = 0
    began = time.perf_counter()
    while time.perf_counter() - began < 60 * minutes:
        done = tuner.turn()
        turn = tuner.report()
        trials, failures = trials + turn.trials, failures + len(turn.failures)
        best |= {program.candidate.workload: program.candidate for program in turn.programs}
        sketches |= {sketch.digest: sketch for sketch in turn.sketches}
        if done:
            break
    taken_s = time.perf_counter() - began
    chosen = {workload: (sketches[c.sketch], c) for workload, c in best.items()}
    with compiling_for(target):
        program = assemble(setup.lowered, chosen, target)
    manifest = describe_build(
        model_name=imported.name, model_digest=imported.digest, target=canonical, threads=1, inputs=imported.inputs,
        outputs=imported.outputs, checks=imported.checks, chosen={w: c.digest for w, (_, c) in chosen.items()},
    )  # fmt: skip
    VmExecutable.create(program.executable, program.weights, manifest).save(folder / "stock.kt")
    return {"seconds": taken_s, "trials": trials, "failures": failures, "tuned": len(best), "tasks": tasks}


def torch_sides(network: str) -> dict[str, Callable[[], None]]:
    """Runs of PyTorch's own network of that name: as it is, and recorded as a CUDA graph."""
    import torch

    device = torch.device("cuda")
    if network == "resnet50":
        from torchvision.models import resnet50

        model = resnet50().eval().to(device)
        arrays = [np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)]
    else:
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig()).eval().to(device)
        arrays = [np.ones((1, 128), np.int64)] * 3
    hosts = [torch.from_numpy(array) for array in arrays]
    inputs = [host.to(device) for host in hosts]
    sides: dict[str, Callable[[], None]] = {}
    for label, tf32 in (("", False), (" TF32", True)):

        def allow(tf32: bool = tf32) -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.backends.cudnn.allow_tf32 = tf32

        torch.backends.cudnn.benchmark = True
        allow()
        with torch.inference_mode():
            for _ in range(3):
                outputs(model(*inputs))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = outputs(model(*inputs))
        torch.cuda.synchronize()

        def host_run(allow: Callable[[], None] = allow) -> None:
            allow()
            with torch.inference_mode():
                for given, host in zip(inputs, hosts, strict=True):
                    given.copy_(host)
                for tensor in outputs(model(*inputs)):
                    tensor.cpu()

        def graph_host_run(graph: Any = graph, kept: Any = kept) -> None:
            for given, host in zip(inputs, hosts, strict=True):
                given.copy_(host)
            graph.replay()
            for tensor in kept:
                tensor.cpu()

        def graph_run(graph: Any = graph) -> None:
            graph.replay()
            torch.cuda.synchronize()

        sides |= {
            f"PyTorch{label} host": host_run,
            f"PyTorch{label} graph host": graph_host_run,
            f"PyTorch{label} graph device": graph_run,
        }
    return sides


def outputs(answer: Any) -> list[Any]:
    """The tensors that a PyTorch network returned."""
    return list(answer.values()) if isinstance(answer, dict) else [answer]


if __name__ == "__main__":
    main()
