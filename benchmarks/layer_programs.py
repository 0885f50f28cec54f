"""Times products and convolutions by each of their programs, in turns: of networks, or of layers that are given.

    python benchmarks/layer_programs.py models/packages/vad_ifless.onnx --shape input=1x576 --constant sr=16000
    python benchmarks/layer_programs.py --layer 1x4,128,128,1x3 --layer 7x7,512,512,3x3 --layer 28x28,72,5x5

A layer is the size of the image, channels, filters and the kernel; without filters it is a depthwise convolution.  It
is padded so that its result has the same size.  Of each program the first candidates of the rule are built, and timed
in turns as a search times them, with weights in the last cache (`--operands cool`) or in the caches of the cores
(`warm`).  A line has the best of each program, what its rule names first, the gigabytes of weights that the best reads
in a second, and its GFLOP/s.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import tvm
from tvm import te, topi

from kintune.compiler.build import CandidateBuilder
from kintune.compiler.kernels.contraction import DENSE, DEPTHWISE, GROUPED
from kintune.compiler.kernels.reading import joined
from kintune.compiler.space.replay import load_workload, save_workload
from kintune.compiler.space.sketches import generate_sketches
from kintune.compiler.space.tvm_space import TvmSpace
from kintune.core.candidate import Candidate, described
from kintune.core.stage_requests import BuildContext, ProfileContext, ProfileItem
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.measure.run import Runner
from kintune.models.constants import parse_constants
from kintune.models.ref import parse_ref
from kintune.search.processor import Processor
from kintune.search.sketch_program import by_program
from kintune.tuning.estimation import preparing
from kintune.workers.device_worker import open_device


def layer(text: str) -> Any:
    """The workload of a convolution with a bias and a ReLU."""
    size, channels, *filters, kernel = text.split(",")
    width = int(filters[0] if filters else channels)
    (high, wide), (down, across) = ([int(each) for each in part.split("x")] for part in (size, kernel))
    data = te.placeholder((1, high, wide, int(channels)), name="data")
    weight = te.placeholder((down, across, int(channels) if filters else 1, width), name="weight")
    bias = te.placeholder((1, 1, 1, width), name="bias")
    pads = ((down - 1) // 2, (across - 1) // 2, down // 2, across // 2)
    if filters:
        convolved = topi.nn.conv2d_nhwc(data, weight, 1, pads, 1)
    else:
        convolved = topi.nn.group_conv2d_nhwc(data, weight, 1, pads, 1, width)
    found = topi.nn.relu(topi.add(convolved, bias))
    function = te.create_prim_func([data, weight, bias, found], index_dtype_override="int64")
    function = function.with_attr("layout_free_buffers", [1]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--layer", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--constant", action="append", default=[])
    parser.add_argument("--operands", default="cool", choices=("cold", "cool", "warm"))
    parser.add_argument("--positions", type=int, default=1 << 30, help="at most so many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=6, help="of each program")
    parser.add_argument("--only", help="the program of which candidates are built")
    parser.add_argument("--all", action="store_true", help="print all candidates")
    options = parser.parse_args()
    modules = {text: layer(text) for text in options.layer}
    constants = parse_constants(options.constant)
    for model in options.models:
        with preparing() as prepare:
            prepared = prepare(parse_ref(model, options.shape, constants=constants))
        modules |= {s.name: load_workload(prepared.modules[s.workload]) for s in prepared.subgraphs}
    about, _ = open_device("native", 0)
    target = tvm.target.Target(json.loads(about.device_type.target))
    machine = Processor.of(about.device_type.isa, about.protocol.threads, data_caches(inspect_machine()))
    runner, builder = Runner(about.cores), CandidateBuilder(about.device_type.target)
    protocol = about.protocol.with_operands(options.operands)
    print("| sum | positions | KB of weights | " + "program: best us, first of the rule us, GB/s, GFLOP/s |")
    for name, module in modules.items():
        matched = next(filter(None, (joined(module, kinds=(kind,)) for kind in (DENSE, DEPTHWISE, GROUPED))), None)
        if matched is None or matched.found.positions > options.positions:
            continue
        found = matched.found
        size = 2 * found.flops / found.positions
        sketches = generate_sketches(name, module, target)
        space = TvmSpace({name: module}, sketches, target, machine, 1)
        context = BuildContext(
            about.device_type.target, {name: save_workload(module)}, {sketch.digest: sketch for sketch in sketches}
        )
        programs = {sketch.digest: program for program, group in by_program(sketches).items() for sketch in group}
        chosen: dict[str, list[Candidate]] = {}
        for candidate in space.rules(name, options.candidates * 8):
            group = chosen.setdefault(programs[candidate.sketch], [])
            is_wanted = options.only is None or programs[candidate.sketch].startswith(options.only)
            if is_wanted and len(group) < options.candidates:
                group.append(candidate)
        drafts = [
            draft.candidate
            for draft in space.verify([each for group in chosen.values() for each in group])
            if draft is not None
        ]
        built = {candidate: builder.build(context, candidate) for candidate in drafts}
        reference = builder.build(context, Candidate.untuned(name))
        times: dict[Candidate, list[float]] = {candidate: [] for candidate in drafts}
        runner.begin(ProfileContext(protocol, {name: reference}))
        for _ in range(options.rounds):
            for candidate in drafts:
                outcome = runner.profile(ProfileItem(name, built[candidate]))
                times[candidate].append(outcome.median_us if outcome.ok else float("inf"))
                if not outcome.ok:
                    print(name, programs[candidate.sketch], outcome.status, outcome.cause)
        cells = []
        for program in chosen:
            own = [(min(times[c]), c) for c in drafts if programs[c.sketch] == program]
            if own:
                best = min(us for us, _ in own)
                rates = f"{size / best / 1e3:.0f}, {found.flops / best / 1e3:.0f}"
                cells.append(f"{program or 'rules'}: {best:.2f}, {own[0][0]:.2f}, {rates}")
            if options.all:
                axes = {sketch.digest: sketch.axes for sketch in sketches}
                print("\n".join(f"  {program} {described(axes[c.sketch], c.decisions)} {us:.2f}" for us, c in own))
        print(f"| {name} | {found.positions} | {size / 1e3:.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
