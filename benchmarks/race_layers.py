"""Races the layers of `layers.py`: the kernels of an older state of the sources against those of this one.

    make race-layers BEFORE=COMMIT
    python benchmarks/race_layers.py --before ../before/src [--after src] [--every N | --layer DIGEST ...]

Each tree builds, for each layer, the first candidates of the rule of each of its programs.  All are timed in turns as a
search times them (weights in the last cache); the quickest two of each tree are timed again in `--rounds` paired
rounds, and the ratio is that of the quickest of each tree, old over new, so above 1 the new one is faster.  A line a
layer has the ratio with the interval in which its median lies with 95 % (bootstrap over rounds), the programs, and the
errors of both against the untuned program.  At the end it prints the geometric mean and the layers whose interval lies
below `WORST`; with such a layer, or a mean below `MEAN`, the exit code is 1.  A line of `--output` is kept for each
layer, so the same command goes on after an interruption.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import layers
import msgspec
import numpy as np

from kintune.core.stage_requests import Built, ProfileContext, ProfileItem

HERE = Path(__file__).resolve().parent.parent

MEAN, WORST = 0.99, 0.93
"""The least geometric mean, and the least upper end of a layer's interval."""

_LEAST_FLOPS = 1e5
_OPERANDS = "cool"
_FINALISTS = 2
_RESAMPLES = 2000


class Made(msgspec.Struct):
    """What one tree made of a layer: its untuned program, and candidates with the program and the decisions of each."""

    reference: Built
    built: list[tuple[str, str, Built]]


class Raced(msgspec.Struct):
    """The outcome of a layer: `ratio` is old over new, from `low` to `high`; what won in each tree, and its errors."""

    digest: str
    title: str
    ratio: float
    low: float
    high: float
    before: str
    after: str
    errors: tuple[float, float]
    failed: list[str]


def build(digests: list[str], count: int, program: str, folder: Path) -> None:
    """Build layers with the tree that this process imports; a file each in the folder.  A name limits the programs."""
    import tvm

    from kintune.compiler.build import CandidateBuilder
    from kintune.compiler.space.replay import load_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.core.candidate import Candidate
    from kintune.core.stage_requests import BuildContext
    from kintune.hardware.cpu import data_caches, inspect_machine
    from kintune.search.processor import Processor
    from kintune.search.sketch_program import by_program
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    target = tvm.target.Target(json.loads(about.device_type.target))
    machine = Processor.of(about.device_type.isa, about.protocol.threads, data_caches(inspect_machine()))
    builder, known = CandidateBuilder(about.device_type.target), layers.read()
    for digest in digests:
        layer = known[digest]
        module = load_workload(layer.module)
        groups = by_program(generate_sketches(digest, module, target, layers.PRECISIONS))
        sketches = [sketch for group in groups.values() for sketch in group]
        names = {sketch.digest: name for name, group in groups.items() for sketch in group}
        context = BuildContext(
            about.device_type.target, {digest: layer.module}, {each.digest: each for each in sketches}
        )
        made = Made(builder.build(context, Candidate.untuned(digest)), [])
        taken: dict[str, int] = {}
        ours = [each for each in sketches if names[each.digest].startswith(program) and names[each.digest]]
        for candidate in TvmSpace({digest: module}, ours or ([] if program else sketches), target, machine, 1).rules(
            digest, 8 * count
        ):
            name = names[candidate.sketch]
            if taken.get(name, 0) < count:
                taken[name] = taken.get(name, 0) + 1
                decided = " ".join(str(number) for each in candidate.decisions for number in each)
                made.built.append((name or "rules", decided, builder.build(context, candidate)))
        (folder / digest).write_bytes(msgspec.msgpack.encode(made))


class Race:
    """Times what two trees made, in this process."""

    def __init__(self, rounds: int) -> None:
        from kintune.measure.run import Runner
        from kintune.workers.device_worker import open_device

        about, _ = open_device("native", 0)
        self._runner, self._rounds = Runner(about.cores), rounds
        self._protocol = about.protocol.with_operands(_OPERANDS)

    def run(self, layer: layers.Layer, before: Made, after: Made) -> Raced | str:
        """Race a layer; a text says why there is nothing to compare."""
        self._runner.begin(ProfileContext(self._protocol, {layer.digest: after.reference}))
        failed: list[str] = []
        finalists: list[list[tuple[float, str, Built, float]]] = []
        for name, made in (("before", before), ("after", after)):
            own = []
            for program, decided, built in made.built:
                us, why = self._once(layer.digest, built)
                if why:
                    failed.append(f"{name}: {program} {decided}: {why}")
                else:
                    own.append((us, f"{program} {decided}", built, self._error(layer.digest, built)))
            finalists.append(sorted(own, key=lambda each: each[0])[:_FINALISTS])
        if not all(finalists):
            return f"{layer.digest[:12]} {layer.title}: nothing to time; {failed[:1]}"
        times: list[list[list[float]]] = [[[] for _ in own] for own in finalists]
        for number in range(self._rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                for at, (_, _, built, _) in enumerate(finalists[which]):
                    times[which][at].append(self._once(layer.digest, built)[0])
        best = [int(np.argmin(np.median(np.array(own), axis=1))) for own in times]
        pairs = np.log(np.array(times[0][best[0]]) / np.array(times[1][best[1]]))
        low, high = _interval(pairs)
        old, new = (finalists[which][best[which]] for which in (0, 1))
        ratio = math.exp(float(np.median(pairs)))
        return Raced(layer.digest, layer.title, ratio, low, high, old[1], new[1], (old[3], new[3]), failed)

    def _once(self, digest: str, built: Built) -> tuple[float, str]:
        outcome = self._runner.profile(ProfileItem(digest, built))
        return (outcome.median_us, "") if outcome.ok else (math.inf, outcome.cause or str(outcome.status))

    def _error(self, digest: str, built: Built) -> float:
        """The norm of what the last run differed by from the untuned program, as a share of that program's norm."""
        arguments = self._runner._cache[digest]
        pairs = zip(arguments.bind(built.operands).outputs, arguments.expected or (), strict=False)
        errors = []
        for actual, expected in pairs:
            wide = expected.astype(np.float64)
            scale = float(np.linalg.norm(wide)) or 1.0
            errors.append(float(np.linalg.norm(actual.astype(np.float64) - wide)) / scale)
        return max(errors, default=0.0)


def _interval(logs: Any) -> tuple[float, float]:
    """The interval in which the median of these logarithms lies with 95 %, as ratios; a fixed seed resamples them."""
    drawn = np.random.default_rng(1).choice(logs, (_RESAMPLES, len(logs)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return math.exp(float(low)), math.exp(float(high))


def _built_by(source: Path, digests: list[str], options: argparse.Namespace, folder: Path) -> subprocess.Popen[bytes]:
    """The process in which a tree builds; the benchmarks are those of this tree."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--build", str(folder), "--candidates", str(options.candidates)]
    command += ["--program", options.program, "--layer", *digests]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(source.resolve())}, cwd=HERE)


def _raced(options: argparse.Namespace, chosen: list[layers.Layer], done: dict[str, Raced]) -> None:
    race, output = Race(options.rounds), options.output.open("ab")
    with tempfile.TemporaryDirectory() as place:
        waiting = [each for each in chosen if each.digest not in done]
        for start in range(0, len(waiting), options.at_once):
            some = waiting[start : start + options.at_once]
            folders = [Path(place, str(start), which) for which in ("before", "after")]
            sources = (options.before, options.after)
            digests = [each.digest for each in some]
            building = [
                _built_by(source, digests, options, folder) for source, folder in zip(sources, folders, strict=True)
            ]
            for source, process in zip(sources, building, strict=True):
                if process.wait():
                    sys.exit(f"{source} builds no layers: see above")
            for layer in some:
                made = [msgspec.msgpack.decode((folder / layer.digest).read_bytes(), type=Made) for folder in folders]
                found = race.run(layer, *made)
                if isinstance(found, str):
                    print(found, flush=True)
                    continue
                done[layer.digest] = found
                output.write(msgspec.json.encode(found) + b"\n")
                output.flush()
                print(_line(found), *found.failed, sep="\n  ", flush=True)


def _line(found: Raced) -> str:
    errors = ", ".join(f"{each:.1e}" for each in found.errors)
    ratio = f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.digest[:12]} {ratio}  {found.before} -> {found.after}  errors {errors}  {found.title}"


def main() -> None:
    """Race, and tell what is slower."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, metavar="FOLDER")
    parser.add_argument("--after", type=Path, default=HERE / "src", metavar="FOLDER")
    parser.add_argument("--layer", nargs="+", default=[], metavar="DIGEST", help="the first characters will do")
    parser.add_argument("--program", default="", help="only the layers that this one computes, and its candidates")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--candidates", type=int, default=4, help="of each program")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=8, help="layers that are built before they are timed")
    parser.add_argument("--output", type=Path, default=Path("layers.jsonl"))
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = layers.read()
    chosen = [
        each
        for each in known.values()
        if each.flops >= _LEAST_FLOPS
        and (not options.layer or any(each.digest.startswith(text) for text in options.layer))
        and (options.layer or any(n.startswith(options.program) for by in each.offers.values() for n in by))
    ][:: options.every]
    if options.build is not None:
        build([each.digest for each in chosen], options.candidates, options.program, options.build)
        return
    if options.before is None:
        parser.error("--before names the older sources")
    done: dict[str, Raced] = {}
    if options.output.exists():
        for line in options.output.read_bytes().splitlines():
            found = msgspec.json.decode(line, type=Raced)
            done[found.digest] = found
    _raced(options, chosen, done)
    _conclude([done[each.digest] for each in chosen if each.digest in done])


def _conclude(raced: list[Raced]) -> None:
    if not raced:
        sys.exit("no layer was raced")
    mean = math.exp(statistics.fmean(math.log(each.ratio) for each in raced))
    slower = [each for each in raced if each.high < WORST]
    print(f"{len(raced)} layers: the new kernels have {mean:.3f} of the old speed (geometric mean); "
          f"{len(slower)} slower than {WORST} with 95 %")  # fmt: skip
    for each in slower:
        print(f"  {_line(each)}")
    sys.exit(bool(slower) or mean < MEAN)


if __name__ == "__main__":
    main()
