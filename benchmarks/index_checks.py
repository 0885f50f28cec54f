"""Measures the time of index checks beside the latency of a network, for given and for computed indices.

    python benchmarks/index_checks.py [--model zoo:bert_base] [--threads N] [--repeats N]

The network is built with the compiler's default schedules, so its latency is only an order of magnitude.  Pass a tuned
one with `--package FILE.kt` for the true share.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="zoo:bert_base", help="the network to build (default: %(default)s)")
    parser.add_argument("--package", type=Path, help="a saved executable to use instead")
    parser.add_argument("--threads", type=int, default=1, help="threads of the network (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="runs of the network (default: %(default)s)")
    arguments = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(arguments.threads)

    import msgspec

    from kintune.core.model import IndexCheck
    from kintune.runtime.executable import Executable
    from kintune.runtime.inputs import arrange_inputs, check_indices, draw_inputs

    executable = Executable.open(arguments.package) if arguments.package else _built(arguments.model, arguments.threads)
    drawn = draw_inputs(executable.inputs)
    unbounded = tuple(msgspec.structs.replace(tensor, bounds=None) for tensor in executable.inputs)
    bounded = [tensor for tensor in executable.inputs if tensor.bounds is not None]
    latency = statistics.median(executable.evaluate(drawn, repeats=arguments.repeats).times_ms)
    given = _median_us(lambda: arrange_inputs(executable.inputs, (drawn,)))
    plain = _median_us(lambda: arrange_inputs(unbounded, (drawn,)))
    computed = 0.0
    for tensor in bounded:  # as if the network had computed each of them
        low, high = tensor.bounds or (0, 0)
        check = IndexCheck("node", 0, (high + 1,), 0, low < 0)
        computed += _median_us(functools.partial(check_indices, [check], [drawn[tensor.name]]))
    print(f"{_cpu()}, {arguments.threads} threads, {executable.manifest.model_name}: {latency:.2f} ms")
    print(f"{'check':34} {'us':>8} {'share of the latency':>21}")
    for name, us in ((f"{len(bounded)} inputs, before a run", given - plain), ("as many computed, after it", computed)):
        print(f"{name:34} {us:8.2f} {us / latency / 10:20.4f}%")


def _built(name: str, threads: int) -> Any:
    import tvm

    from kintune.compiler.graph.executable import build_executable, describe_build
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    model = load(parse_ref(name))
    text = resolve_target("native", threads)
    target = tvm.target.Target(json.loads(text))
    manifest = describe_build(
        model_name=model.name,
        model_digest=model.digest,
        target=text,
        threads=threads,
        inputs=model.inputs,
        outputs=model.outputs,
        checks=model.checks,
        chosen={},
    )
    return build_executable(lower(model.module, target), {}, target, manifest)


def _median_us(call: Callable[[], object], rounds: int = 51, calls: int = 200) -> float:
    """The time of one call in microseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e6


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


if __name__ == "__main__":
    main()
