"""Runs ONNX's backend suite through the importer and the compiler, in worker processes: a crash costs one case.

As a program: `python -m tests.support.onnx_suite [--rules] [--extremes] [--processes N] [NAME ...]` tells what is not
right.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from kintune.hardware.software import forbid_torch
from tests.support.extreme_runs import KNOWN_DIFFERENCES, extreme_difference
from tests.support.onnx_cases import Case, as_constants, cases, deciding_inputs, operators, reference

__all__ = ["REFUSED", "RIGHT", "SHARED", "Suite", "Verdict", "representatives", "run_suite", "written_suite"]

RIGHT = "right"
SHARED = "right, partly in onnxruntime"
REFUSED = "refused"
WRONG = "wrong"
FAILED = "failed after import"
INTERNAL = "internal error"
CRASHED = "crashed"

_MODULE = "tests.support.onnx_suite"

Known = Sequence[NDArray[Any]]
"""The outputs that onnxruntime computes."""


class Verdict(NamedTuple):
    """How a case went: `kind` is one of the above, `reason` says what was wrong.

    `constants` tells which inputs had to be fixed, by what they do; `operators` are those in the model, of `opset`.
    """

    kind: str
    reason: str
    constants: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    opset: int = 0


class Suite(NamedTuple):
    """All cases that onnxruntime runs, written to a folder: the operators of each, by its name."""

    folder: str
    operators: dict[str, tuple[str, ...]]


@contextmanager
def written_suite() -> Iterator[Suite]:
    """The cases in a folder that is removed in the end; computing what they must give takes seconds."""
    with tempfile.TemporaryDirectory(prefix="kintune-onnx-suite-") as folder:
        command = [sys.executable, "-W", "ignore", "-m", _MODULE, "--write", folder]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield Suite(folder, {name: tuple(found) for name, found in json.loads(said.splitlines()[-1]).items()})


def representatives(operators: Mapping[str, Collection[str]], every: int) -> list[str]:
    """Every so many of the cases, and those with an operator that no case before them has."""
    seen: set[str] = set()
    chosen = []
    for number, (name, found) in enumerate(operators.items()):
        if number % every == 0 or not seen.issuperset(found):
            chosen.append(name)
            seen.update(found)
    return chosen


def run_suite(
    suite: Suite,
    *,
    rules: bool = False,
    shared: bool = False,
    extremes: bool = False,
    processes: int = 2,
    names: Iterable[str] = (),
) -> dict[str, Verdict]:
    """Try all cases, or those in `names`.

    With `shared` each is compiled as a job does that may leave nodes to onnxruntime.  With `extremes` each also runs on
    extreme inputs, beside onnxruntime and ONNX's reference: where one of them runs, the outputs are those of one.

    With `rules` each subgraph gets the first program of the rule instead of the compiler's default schedule.
    """
    wanted = set(names)
    todo = [name for name in suite.operators if not wanted or name in wanted]
    with ThreadPoolExecutor(processes) as pool:
        options = ["--rules"] * rules + ["--shared"] * shared + ["--extremes"] * extremes
        parts = pool.map(lambda start: _work_off(todo[start::processes], suite.folder, options), range(processes))
        found = {name: verdict for part in parts for name, verdict in part.items()}
    return {name: found[name] for name in sorted(found)}


def _work_off(names: Sequence[str], folder: str, options: Sequence[str]) -> dict[str, Verdict]:
    """Have cases tried one after another by a worker, which is replaced when it crashes."""
    found: dict[str, Verdict] = {}
    queue = list(reversed(names))
    while queue:
        command = [sys.executable, "-W", "ignore", "-m", _MODULE, "--work", folder, *options]
        environment = {**os.environ, "TVM_NUM_THREADS": "1"}
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            while queue:
                name = queue.pop()
                worker.stdin.write(name + "\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
                if not line:
                    found[name] = Verdict(CRASHED, f"the worker ended with {worker.wait()}")
                    break
                kind, reason, *more = json.loads(line)
                found[name] = Verdict(kind, reason, tuple(more[0]), tuple(more[1]), more[2])
            worker.stdin.close()
    return found


def _serve(folder: str, rules: bool, shared: bool, extremes: bool) -> None:
    """Try the cases whose names come in, and answer with a line for each; nothing else may be written between them."""
    answers: IO[str] = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    trial = _Trial(rules, extremes)
    for line in sys.stdin:
        case, known = pickle.loads((Path(folder) / line.strip()).read_bytes())
        with tempfile.TemporaryDirectory(dir=folder) as place:
            verdict = (trial.run_shared if shared else trial.try_case)(case, known, Path(place))
        answers.write(json.dumps(verdict) + "\n")
        answers.flush()


class _Trial:
    """Compiles and runs cases in this process."""

    def __init__(self, rules: bool, extremes: bool) -> None:
        from kintune_lab.fuzz.compiling import Compiler

        self._rules = rules
        self._extremes = extremes
        self._compiler = Compiler()

    def try_case(self, case: Case, known: Known, place: Path) -> Verdict:
        """Import with all inputs open, and where that is refused with those fixed that decide shapes; then compare."""
        proto = case.proto
        facts = tuple(sorted(operators(proto))), max((each.version for each in proto.opset_import), default=0)
        kind, reason = self._attempt(case, proto, case.feeds, known, place)
        deciding = deciding_inputs(proto)
        values = {name: value for name, value in case.feeds.items() if name in deciding}
        if kind != REFUSED or not values:
            return Verdict(kind, reason, (), *facts)
        feeds = {name: value for name, value in case.feeds.items() if name not in values}
        kind, reason = self._attempt(case, as_constants(proto, values), feeds, known, place)
        return Verdict(kind, reason, tuple(sorted({deciding[name] for name in values})), *facts)

    def _attempt(
        self,
        case: Case,
        proto: onnx.ModelProto,
        feeds: Mapping[str, NDArray[Any]],
        known: Sequence[NDArray[Any]],
        place: Path,
    ) -> tuple[str, str]:
        from kintune.errors import KintuneError
        from kintune.models.importer import load
        from kintune.models.ref import parse_ref

        path = place / "model.onnx"
        onnx.save(proto, path)
        open_inputs = {
            value.name
            for value in proto.graph.input
            if any(not dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        }
        shapes = [f"{name}={'x'.join(map(str, value.shape))}" for name, value in feeds.items() if name in open_inputs]
        try:
            model = load(parse_ref(str(path), [shape for shape in shapes if shape[-1] != "="]))
        except KintuneError as error:
            return REFUSED, str(error).replace(f"{path}: ", "")
        except Exception as error:
            return INTERNAL, f"import: {_line(error)}"
        try:
            executable = self._compiler.compile(model, rules=self._rules)
            taken = {tensor.name for tensor in executable.inputs}
            outputs = list(executable.run({name: value for name, value in feeds.items() if name in taken}).values())
        except KintuneError as error:
            return FAILED, _line(error)
        except Exception as error:
            return INTERNAL, _line(error)
        difference = _difference(outputs, case, known)
        if self._extremes and not difference and case.name not in KNOWN_DIFFERENCES:
            difference = extreme_difference(executable, proto, feeds, case.rtol, case.atol)
        return (WRONG, difference) if difference else (RIGHT, "")

    def run_shared(self, case: Case, known: Known, place: Path) -> Verdict:
        """Compile a case as a job does that may leave nodes to onnxruntime, one after another as far as it must."""
        path = place / "model.onnx"
        onnx.save(case.proto, path)
        handed_over: tuple[str, ...] = ()
        reason = ""
        for handed_over in ((), ("*",)):
            try:
                outputs = self._run_as_job(path, case, handed_over)
            except Exception as error:
                reason = _line(error)
                continue
            reason = _difference(outputs, case, known)
            if not reason:
                return Verdict(SHARED, "" if not handed_over else "all of it")
        return Verdict(FAILED, reason)

    def _run_as_job(self, path: Path, case: Case, handed_over: tuple[str, ...]) -> list[NDArray[Any]]:
        from kintune.runtime.opening import open

        open_inputs = {
            value.name
            for value in case.proto.graph.input
            if any(not dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        }
        shapes = [f"{n}={'x'.join(map(str, value.shape))}" for n, value in case.feeds.items() if n in open_inputs]
        made = self._compiler.compile_as_job(path, [shape for shape in shapes if shape[-1] != "="], handed_over)
        with open(made) as executable:
            taken = {tensor.name for tensor in executable.inputs}
            return list(executable.run({name: value for name, value in case.feeds.items() if name in taken}).values())


def _difference(outputs: Sequence[NDArray[Any]], case: Case, known: Sequence[NDArray[Any]]) -> str:
    """What is wrong with the outputs; empty if nothing is.

    They may differ from the suite's as far as the suite allows, or else twice as far as onnxruntime's do.
    """
    if len(outputs) != len(case.outputs):
        return f"{len(outputs)} outputs instead of {len(case.outputs)}"
    for number, (got, wanted, theirs) in enumerate(zip(outputs, case.outputs, known, strict=True)):
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            return f"output {number} is {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        with np.errstate(all="ignore"):
            if wanted.dtype.kind == "f" or got.dtype == bool:
                allowed = case.atol + case.rtol * np.abs(wanted.astype(np.float64))
                away, as_theirs = (
                    np.abs(each.astype(np.float64) - wanted.astype(np.float64)) for each in (got, theirs)
                )
                same = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (got == theirs)
                if (bad := ~(same | (away <= allowed) | (away <= 2 * as_theirs))).any():
                    where = tuple(int(index[0]) for index in np.nonzero(bad))
                    return f"output {number} at {list(where)} is {got[where]} instead of {wanted[where]}"
            elif (bad := (got != wanted) & (got != theirs)).any():
                where = tuple(int(index[0]) for index in np.nonzero(bad))
                return f"output {number} at {list(where)} is {got[where]} instead of {wanted[where]}"
    return ""


def _line(error: BaseException) -> str:
    """The last line of an error's text with its kind, which is what the compiler puts the cause in."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[-1][-300:]}"


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("--write", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--work", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--rules", action="store_true", help="programs of the rule instead of default schedules")
    parser.add_argument("--shared", action="store_true", help="nodes may be left to onnxruntime")
    parser.add_argument("--extremes", action="store_true", help="also on extreme inputs")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write all verdicts there")
    parser.add_argument("names", nargs="*", help="cases; all if there are none")
    given = parser.parse_args(arguments)
    if given.write:
        written = {}
        for case in cases():
            if (known := reference(case)) is not None:
                (Path(given.write) / case.name).write_bytes(pickle.dumps((case, known)))
                written[case.name] = sorted(operators(case.proto))
        print(json.dumps(written))
    elif given.work:
        forbid_torch()
        _serve(given.work, given.rules, given.shared, given.extremes)
    else:
        with written_suite() as suite:
            options = {name: getattr(given, name) for name in ("rules", "shared", "extremes", "processes", "names")}
            found = run_suite(suite, **options)
        for name, verdict in found.items():
            if verdict.kind not in (RIGHT, SHARED) or given.names:
                print(f"{verdict.kind:20} {name}  {verdict.reason} {' '.join(verdict.constants)}")
        print(Counter(verdict.kind for verdict in found.values()))
        if given.json:
            Path(given.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    _main(sys.argv[1:])
