"""Times the first candidates of a program of our own as two source trees write them, in turns.

    git worktree add ../before COMMIT
    python benchmarks/program_versions.py winograd_blocked --source before=../before/src --source after=src \
        --layer 7x7,512,512,3x3 --layer 14x14,256,256,3x3

A layer is the size of the image, channels, filters and the kernel, as for `layer_programs.py`.  Each tree
builds the first candidates of its rule; those that both have are timed in turns as a search times them, with weights in
the last cache (`--operands cool`).  A line has the median microseconds of each, the median of the ratios round by
round, and what building took.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from kintune.core.candidate import Candidate, Decision
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem


class Version(msgspec.Struct):
    """What one tree made of a layer: the untuned program, and candidates by variant and decisions."""

    layer: str
    reference: Built
    built: list[tuple[str, tuple[Decision, ...], Built, float]]


def build(program: str, layers: list[str], count: int, path: Path) -> None:
    """Build with the tree that this process imports, and write what it made."""
    import tvm
    from layer_programs import layer

    from kintune.compiler.build import CandidateBuilder
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.core.stage_requests import BuildContext
    from kintune.hardware.cpu import data_caches, inspect_machine
    from kintune.search.processor import Processor
    from kintune.search.sketch_program import by_program
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    target = tvm.target.Target(json.loads(about.device_type.target))
    machine = Processor.of(about.device_type.isa, about.protocol.threads, data_caches(inspect_machine()))
    builder, versions = CandidateBuilder(about.device_type.target), []
    for text in layers:
        module = layer(text)
        sketches = [
            sketch
            for name, group in by_program(generate_sketches(text, module, target)).items()
            if name.startswith(f"{program}.")
            for sketch in group
        ]
        names = {
            sketch.digest: name.partition(":")[2] for name, group in by_program(sketches).items() for sketch in group
        }
        context = BuildContext(
            about.device_type.target, {text: save_workload(module)}, {sketch.digest: sketch for sketch in sketches}
        )
        reference = builder.build(context, Candidate.untuned(text))
        version = Version(text, reference, [])
        for candidate in TvmSpace({text: module}, sketches, target, machine, 1).rules(text, count):
            begun = time.perf_counter()
            made = builder.build(context, candidate)
            seconds = time.perf_counter() - begun
            version.built.append((names[candidate.sketch], candidate.decisions, made, seconds))
        versions.append(version)
    path.write_bytes(msgspec.msgpack.encode(versions))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--layer", action="append", required=True)
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER", help="two of them")
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--operands", default="cool", choices=("cold", "cool", "warm"))
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build is not None:
        build(options.program, options.layer, options.candidates, options.build)
        return
    sources = dict(source.split("=", 1) for source in options.source)
    if len(sources) != 2:
        parser.error("two --source NAME=FOLDER are compared")
    made = {name: _built_by(options, folder) for name, folder in sources.items()}
    _compare(made, options.rounds, options.operands)


def _built_by(options: argparse.Namespace, folder: str) -> list[Version]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "built"
        command = [
            sys.executable,
            __file__,
            options.program,
            "--build",
            str(path),
            "--candidates",
            str(options.candidates),
        ]
        command += [argument for text in options.layer for argument in ("--layer", text)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": folder})
        return msgspec.msgpack.decode(path.read_bytes(), type=list[Version])


def _compare(made: dict[str, list[Version]], rounds: int, operands: str) -> None:
    from kintune.measure.run import Runner
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    runner, protocol = Runner(about.cores), about.protocol.with_operands(operands)
    before, after = made
    print(f"| layer | variant, decisions | {before}, us | {after}, us | ratio | built in, s: {before}, {after} |")
    for one, other in zip(*made.values(), strict=True):
        runner.begin(ProfileContext(protocol, {one.layer: other.reference}))
        earlier = {(variant, decisions): (built, seconds) for variant, decisions, built, seconds in one.built}
        for variant, decisions, built, seconds in other.built:
            if (variant, decisions) not in earlier:
                continue
            old, old_seconds = earlier[variant, decisions]
            times: list[list[float]] = [[], []]
            for _ in range(rounds):
                for program, taken in zip((old, built), times, strict=True):
                    outcome = runner.profile(ProfileItem(one.layer, program))
                    taken.append(outcome.median_us if outcome.ok else float("nan"))
            ratio = statistics.median(new / past for past, new in zip(*times, strict=True))
            us = " | ".join(f"{statistics.median(taken):.0f}" for taken in times)
            picked = " ".join(str(each[0]) for each in decisions)
            print(
                f"| {one.layer} | {variant}, {picked} | {us} | {ratio:.2f} | {old_seconds:.2f}, {seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
