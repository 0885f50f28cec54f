"""Times single products and convolutions: the best of the first candidates of each program, fp32 and bf16.

python benchmarks/narrow_products.py --threads 1 [--candidates 10] [NAME...]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator

import tvm
from tvm import te, topi

from kintune.compiler.build import build_candidate
from kintune.compiler.programs.panel_sum import BF16
from kintune.compiler.space.replay import save_workload
from kintune.compiler.space.sketches import generate_sketches
from kintune.compiler.space.tvm_space import TvmSpace
from kintune.core.candidate import Candidate, described
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import BuildError
from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.run import Runner
from kintune.runtime.target import capabilities, resolve_target
from kintune.search.processor import Processor
from kintune.search.sketch_program import by_program


def product(rows: int, reduced: int, columns: int) -> tvm.IRModule:
    data, weights = te.placeholder((rows, reduced), name="data"), te.placeholder((reduced, columns), name="weights")
    bias, k = te.placeholder((columns,), name="bias"), te.reduce_axis((0, reduced), name="k")
    found = te.compute((rows, columns), lambda i, j: te.sum(data[i, k] * weights[k, j], axis=k), name="matmul")
    return _module(data, weights, bias, topi.nn.relu(topi.add(found, bias)))


def convolution(size: int, channels: int, filters: int, kernel: int = 1, stride: int = 1) -> tvm.IRModule:
    data = te.placeholder((1, size, size, channels), name="data")
    weights = te.placeholder((kernel, kernel, channels, filters), name="weights")
    bias = te.placeholder((1, 1, 1, filters), name="bias")
    found = topi.nn.conv2d_nhwc(data, weights, stride, kernel // 2, 1)
    return _module(data, weights, bias, topi.nn.relu(topi.add(found, bias)))


def _module(*operands: te.Tensor) -> tvm.IRModule:
    function = te.create_prim_func(list(operands), index_dtype_override="int64").with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


CASES: dict[str, Callable[[], tvm.IRModule]] = {
    "128x768x768": lambda: product(128, 768, 768),
    "197x768x3072": lambda: product(197, 768, 3072),
    "197x3072x768": lambda: product(197, 3072, 768),
    "1x768x50257": lambda: product(1, 768, 50257),
    "7x7 of 3, stride 2, 224": lambda: convolution(224, 3, 64, 7, 2),
    "3x3 of 64, 56": lambda: convolution(56, 64, 64, 3),
    "3x3 of 128, 28": lambda: convolution(28, 128, 128, 3),
    "3x3 of 256, 14": lambda: convolution(14, 256, 256, 3),
    "3x3 of 512, 7": lambda: convolution(7, 512, 512, 3),
    "1x1 of 64 to 256, 56": lambda: convolution(56, 64, 256),
    "1x1 of 256 to 64, 56": lambda: convolution(56, 256, 64),
    "1x1 of 512 to 128, 28": lambda: convolution(28, 512, 128),
    "1x1 of 1024 to 256, 14": lambda: convolution(14, 1024, 256),
    "1x1 of 2048 to 512, 7": lambda: convolution(7, 2048, 512),
}


def built(
    module: tvm.IRModule, target: tvm.target.Target, machine: Processor, number: int
) -> Iterator[tuple[str, Built]]:
    """The first candidates of each program, with its name; empty for MetaSchedule's."""
    sketches = generate_sketches("w", module, target, frozenset({BF16}))
    for program, members in by_program(sketches).items():
        space = TvmSpace({"w": module}, members, target, machine, 1)
        by_digest = {sketch.digest: sketch for sketch in members}
        for candidate in space.rules("w", number):
            try:
                yield program, build_candidate(target, save_workload(module), by_digest[candidate.sketch], candidate)
            except BuildError as error:
                print(f"{program} {described(by_digest[candidate.sketch].axes, candidate.decisions)}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    target = tvm.target.Target(json.loads(resolve_target("native", options.threads)))
    machine = Processor.of(capabilities(target).extensions, options.threads, data_caches(inspect_machine()))
    protocol = MeasurementProtocol(threads=options.threads, repeats=5, max_seconds=0.2, operands="cool")
    runner = Runner(choose_cores(options.threads))
    for name in options.names or CASES:
        module = CASES[name]()
        reference = build_candidate(target, save_workload(module), None, Candidate.untuned("w"))
        candidates = list(built(module, target, machine, options.candidates))
        runner.begin(ProfileContext(protocol, {"w": reference}))
        best: dict[str, float] = {}
        for program, candidate in candidates:
            outcome = runner.profile(ProfileItem("w", candidate))
            if outcome.ok:
                best[program] = min(best.get(program, outcome.median_us), outcome.median_us)
        runner.release()
        print(name, ", ".join(f"{program or 'rules'} {us:.0f} us" for program, us in best.items()), flush=True)


if __name__ == "__main__":
    main()
