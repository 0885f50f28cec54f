"""Counts the kernels that are proven in bounds, over networks and ONNX's backend suite, and lists the others.

    python -m benchmarks.bounds [zoo:NAME | FILE.onnx ...] [--suite] [--every N] [--rules] [--tries] [--json FILE]

Without models, it takes all networks of the zoo; `--suite` adds ONNX's suite, or each N-th case of it.  With `--rules`
each subgraph gets the first program of the rule in place of the default schedule; with `--tries` what is not proven
runs between guard pages.  A process compiles one network, or
many cases.  For each network, and for the suite, it prints the kernels, how many are proven, the seconds of the proofs
and of compiling, and each access that is not proven, with what is known of it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

MODULE, SUITE = "benchmarks.bounds", "tests.support.onnx_suite"


class Counted:
    """Compiles in this process, and counts kernels, accesses that are not proven, and seconds."""

    def __init__(self, rules: bool, tries: bool) -> None:
        from kintune.compiler import bounds
        from kintune.compiler.graph import assemble, executable, kernel_library

        self.rules, self.trial = rules, import_module(SUITE)._Trial(rules, False)
        self.kernels, self.unproven, self.proof_s, self.compile_s = 0, Counter[str](), 0.0, 0.0
        self.tried = 0
        plain_prove, plain_build = bounds.prove, executable.build_executable

        def prove(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return plain_prove(*arguments)
            finally:
                self.proof_s += time.perf_counter() - began

        def build(*arguments: Any) -> Any:
            began = time.perf_counter()
            made = plain_build(*arguments)
            self.compile_s += time.perf_counter() - began
            for each in made.manifest.bounds:
                self.kernels += each.kernels
                self.tried += len(each.tried)
                for kernel, accesses in each.unproven.items():
                    self.unproven[f"{self.name}: {kernel}: {' | '.join(accesses[:3])}"] += 1
            return made

        for module, name, function in (
            (assemble, "prove", prove),
            (kernel_library, "prove", prove),
            (executable, "build_executable", build),
            *([] if tries else [(executable, "try_kernels", lambda *_arguments: "")]),
        ):
            setattr(module, name, function)
        self.name = ""

    def network(self, spelled: str) -> None:
        """Compile a network of the zoo, or a file."""
        from kintune.models.importer import load
        from kintune.models.ref import parse_ref
        from kintune_lab.fuzz.compiling import Compiler

        self.name = spelled
        Compiler().compile(load(parse_ref(spelled)), rules=self.rules)

    def case(self, name: str, folder: Path) -> None:
        """Compile a case of the suite."""
        self.name = name
        case, known = pickle.loads((folder / name).read_bytes())
        with tempfile.TemporaryDirectory() as place:
            self.trial.try_case(case, known, Path(place))

    def result(self) -> dict[str, Any]:
        """All counts as JSON."""
        return {
            "kernels": self.kernels, "unproven": dict(self.unproven), "tried": self.tried,
            "proof_s": self.proof_s, "compile_s": self.compile_s,
        }  # fmt: skip


def work(arguments: argparse.Namespace) -> None:
    """Compile what standard input names, a line each, and print the counts."""
    counted = Counted(arguments.rules, arguments.tries)
    for line in sys.stdin.read().split():
        try:
            counted.case(line, Path(arguments.work)) if arguments.work else counted.network(line)
        except Exception as error:
            print(f"{line}: {type(error).__name__}: {str(error).splitlines()[-1][:200]}", file=sys.stderr)
    print(json.dumps(counted.result()))


def in_process(names: list[str], folder: str, options: list[str]) -> dict[str, Any]:
    """The counts of a process that compiles these networks, or these cases in a folder."""
    command = [sys.executable, "-W", "ignore", "-m", MODULE, "--work", folder, *options]
    done = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        if any(line.startswith(f"{name}: ") for name in names):
            print(f"  {line}", flush=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"  a process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        return {"kernels": 0, "unproven": {}, "tried": 0, "proof_s": 0.0, "compile_s": 0.0}
    return dict(json.loads(lines[-1]))


def counts(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each network and its counts, then those of the suite."""
    from kintune.models import zoo

    options = ["--rules"] * arguments.rules + ["--tries"] * arguments.tries
    for name in arguments.models or [f"zoo:{each}" for each in zoo.names()]:
        yield name, in_process([name], "", options)
    if arguments.suite:
        with import_module(SUITE).written_suite() as suite:
            names = list(suite.operators)[:: arguments.every]
            for start in range(0, len(names), 40):
                yield f"suite {start}", in_process(names[start : start + 40], suite.folder, options)


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--tries", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments)
        return
    all_of_them: dict[str, dict[str, Any]] = {}
    kernels, proven = 0, 0
    for name, found in counts(arguments):
        all_of_them[name] = found
        share = found["proof_s"] / found["compile_s"] if found["compile_s"] else 0.0
        number, missing = found["kernels"], sum(found["unproven"].values())
        print(
            f"{name}: {number - missing} of {number} proven, {found['tried']} tried; proofs {found['proof_s']:.2f} s,"
            f" {share:.1%} of {found['compile_s']:.1f} s",
            flush=True,
        )
        for text in found["unproven"]:
            print(f"  {text}", flush=True)
        kernels, proven = kernels + number, proven + number - missing
    print(f"all: {proven} of {kernels} kernels proven ({proven / max(1, kernels):.2%})")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(all_of_them, indent=1))


if __name__ == "__main__":
    main()
