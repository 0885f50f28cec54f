"""Mutation testing: change one place of the sources at a time, and see whether the tests of that part notice.

`mutmut` finds the places and writes the changes; `mutant_trials` runs tests on them.  This adds what a draw needs:
parts of the sources with their tests, mutants drawn by a seed, survivors that are explained in `tests/mutants.toml`,
and results that are kept in `build/mutants`, so that a run goes on where one ended.  A mutant is run again after its
function changed, and one that survived after a test changed.  It is tried by the tests that reach its function, those
first that promise most a second, up to a limit: what only a whole search notices counts as survived.

Comparisons, arithmetic, numbers, conditions, `min` and `max`, truth values, branches, cases and keyword arguments are
changed.  Strings, arguments replaced by None, and `strict=True` are not: types, or readers of messages, tell these.
Nor is `rng.random() < share`: a draw equals its bound once in 2**53 times.
Decorated functions (other than static and class methods) and statements of modules and classes are left out.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from mutant_trials import KILLED, LATE, SURVIVED, Code, Reach, Trial, Trials, functions_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["EXPLAINED", "PARTS", "Part", "explained", "main"]

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
EXPLAINED = ROOT / "tests" / "mutants.toml"

PROFILE = "mutants"
"""The profile of property tests: the same examples in each run, and none made smaller."""

_MOST_S = 60.0  # of a processor, for the tests that a mutant is tried by; another limit by `--seconds`
_LINE_S, _SAVE_S = 60.0, 5.0  # between two lines of progress, and between two times that results are written
_FUTURE = "from __future__ import annotations\n"


class Part(NamedTuple):
    """Files that are mutated, as patterns, and the tests that have to notice: files or folders, and pytest's marks.

    Files of these names, or in folders of these names, are `left_out`.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    marks: str = "not slow"
    left_out: tuple[str, ...] = ()


def _subpackage(name: str, marks: str = "not slow", left_out: tuple[str, ...] = ()) -> Part:
    return Part((f"src/kintune/{name}/**/*.py",), (f"tests/{name}",), marks, left_out)


_READERS = ("blocks", "contraction", "cutting", "epilogue", "padding_block", "reading")

PARTS: Mapping[str, Part] = {
    **{name: _subpackage(name) for name in ("core", "search", "scheduler", "records")},
    # a compiler and other runtimes, in processes of their own, take ten seconds and more for each mutant
    "validate": _subpackage(
        "validate",
        "not slow and not tvm",
        ("baselines", "baseline_worker", "board_executable", "validation_run", "validation"),
    ),
    "readers": Part(
        tuple(f"src/kintune/compiler/kernels/{name}.py" for name in _READERS),
        tuple(f"tests/compiler/kernels/test_{name}.py" for name in _READERS),
    ),
}
"""What is mutated, by name; `readers` are the files that read what a kernel computes."""


class Change(NamedTuple):
    """A mutant as people see it: a function, as `search.session:SearchSession.plan`, and the lines before and after."""

    function: str
    before: str
    after: str

    @property
    def matters(self) -> bool:
        """Whether it changes more than what happens when two sequences differ in length, or a draw equals its bound."""
        plain = [
            re.sub(r"(, )?strict=(True|False)|, (?=\))", "", re.sub(r"(rng\.random\([^()]*\)) <=? ", r"\1 < ", line))
            for line in (self.before, self.after)
        ]
        return plain[0] != plain[1]

    def __str__(self) -> str:
        return f"{self.function}\n    - {self.before}\n    + {self.after}"


def explained(path: Path = EXPLAINED) -> dict[Change, str]:
    """The mutants that may survive, with the reason of each."""
    entries = tomllib.loads(path.read_text())["mutant"]
    return {Change(each["of"], each["before"], each["after"]): each["reason"] for each in entries}


class Mutant:
    """One place of a function, changed."""

    def __init__(self, source: Source, scope: str, function: Any, mutation: Any) -> None:
        self.source = source
        self._scope, self._function, self._mutation = scope, function, mutation

    @property
    def function(self) -> str:
        """The function, as `kintune.search.session:SearchSession.plan`."""
        return f"{self.source.module}:{self._scope}{'.' if self._scope else ''}{self._function.name.value}"

    @cached_property
    def _changed(self) -> Any:
        from mutmut.mutation.file_mutation import deep_replace

        return deep_replace(self._function, self._mutation.original_node, self._mutation.mutated_node)

    @cached_property
    def change(self) -> Change:
        """What it changes, for people."""
        before, after = (_code(each).strip().split("\n") for each in (self._function, self._changed))
        lines = list(difflib.unified_diff(before, after, lineterm=""))[2:]
        told = (" ".join(" ".join(line[1:] for line in lines if line[0] == sign).split()) for sign in "-+")
        return Change(self.function.removeprefix("kintune."), *told)

    @cached_property
    def code(self) -> Code:
        """What the function runs instead."""
        import libcst as cst

        if self._scope:
            text = _code(cst.ClassDef(name=cst.Name(self._scope), body=cst.IndentedBlock([self._changed])))
        else:
            text = _code(self._changed)
        return Code(self.source.module, self._scope, self._function.name.value, _FUTURE + text)

    @property
    def digest(self) -> str:
        """Of the function before and after the change."""
        return hashlib.sha256(f"{_code(self._function)}\0{self.code.source}".encode()).hexdigest()


def _code(node: Any) -> str:
    import libcst as cst

    return cst.Module([node]).code


class Source:
    """A file that is mutated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")

    def mutants(self) -> Iterator[tuple[str, Mutant]]:
        """Its mutants, each with a name that keeps while the function is the same."""
        import libcst as cst
        from mutmut.mutation.file_mutation import create_mutations, group_by_top_level_node
        from mutmut.mutation.trampoline_templates import mangle_function_name

        module, mutations, *_ = create_mutations(str(self.path), self.path.read_text())
        of = group_by_top_level_node(mutations)
        for scope, statements in [
            ("", module.body),
            *((s.name.value, s.body.body) for s in module.body if isinstance(s, cst.ClassDef)),
        ]:
            for function in statements:
                if isinstance(function, cst.FunctionDef):
                    name = mangle_function_name(name=function.name.value, class_name=scope or None)
                    for number, mutation in enumerate(of.get(function, ()), 1):
                        yield f"{self.module}.{name}__mutmut_{number}", Mutant(self, scope, function, mutation)


class Kept:
    """What is kept of a part from one run to the next: which tests reach what, and how trials ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path.exists() else {}
        self._files: dict[str, str] = kept.get("files", {})
        self.reach = {test: Reach(s, frozenset(names)) for test, (s, names) in kept.get("reach", {}).items()}
        self.ends: dict[str, list[str]] = kept.get("ends", {})  # digest, end, test
        self._saved = time.monotonic()

    def update(self, part: Part) -> None:
        """Forget what the tests of changed files reach, and which mutants survived before a test changed."""
        now = {_relative(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in _files_of(part)}
        changed = {path for path in self._files.keys() | now.keys() if self._files.get(path) != now.get(path)}
        if any(path.startswith("tests/support/") or path.endswith("conftest.py") for path in changed):
            self.reach = {}
        self.reach = {test: reach for test, reach in self.reach.items() if test.partition("::")[0] not in changed}
        if changed:
            self.ends = {name: end for name, end in self.ends.items() if end[1] != SURVIVED}
        self._files = now

    def save(self, always: bool = True) -> None:
        """Write it down, if a while has passed since that was done."""
        if always or time.monotonic() - self._saved > _SAVE_S:
            reach = {test: (round(each.seconds, 4), sorted(each.functions)) for test, each in self.reach.items()}
            text = json.dumps({"files": self._files, "reach": reach, "ends": self.ends})
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_suffix(".new")
            new.write_text(text)
            new.replace(self._path)
            self._saved = time.monotonic()


def files_of(part: Part) -> list[Path]:
    """The files of a part that are mutated."""
    found = [path for pattern in part.sources for path in sorted(ROOT.glob(pattern))]
    return [path for path in found if not {path.stem, *path.relative_to(ROOT).parts} & set(part.left_out)]


def _files_of(part: Part) -> Iterator[Path]:
    """The tests of a part, and what they share."""
    for place in ("tests/conftest.py", "tests/support", *part.tests):
        found = ROOT / place
        yield from [found] if found.is_file() else sorted(found.rglob("*.py"))


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Row(NamedTuple):
    """What became of the mutants of a part."""

    part: str
    places: int
    drawn: int
    killed: int
    timed_out: int
    explained: int
    survived: int


class Run:
    """The trials of one part."""

    def __init__(self, name: str, count: int, seed: int, processes: int, seconds: float = _MOST_S) -> None:
        self._name, self._part, self._processes, self._most_s = name, PARTS[name], processes, seconds
        sources = [Source(path) for path in files_of(self._part)]
        self._sources = sources
        self._mutants = dict(mutant for source in sources for mutant in source.mutants())
        order = drawn(self._mutants, len(self._mutants), seed)
        matter = (name for name in order if self._mutants[name].change.matters)
        self._drawn = list(itertools.islice(matter, count))
        self._kept = Kept(WORK / f"{name}.json")
        self._kept.update(self._part)
        self._tallies: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])  # killed, tried

    def go(self) -> tuple[Row, list[Change]]:
        """Try the mutants that were not tried before; return the numbers, and the changes that survived unexplained."""
        known = explained()
        tried = [name for name in self._drawn if self._mutants[name].change not in known]
        self._todo = [name for name in tried if self._kept.ends.get(name, [""])[0] != self._mutants[name].digest]
        if self._todo:
            options = ["-q", "-s", "-m", self._part.marks, "-pno:cacheprovider", "-pno:xdist", "--timeout=0"]
            trials = Trials([source.module for source in self._sources], WORK / f"{self._name}.run", self._work)
            trials.collect([*options, f"--rootdir={ROOT}", *self._part.tests])
        ends = {name: self._kept.ends[name][1] for name in tried}
        counts = Counter(ends.values())
        left = [self._mutants[name].change for name, end in ends.items() if end == SURVIVED]
        explanations = len(self._drawn) - len(tried)
        places = len(self._mutants)
        return (
            Row(self._name, places, len(self._drawn), counts[KILLED], counts[LATE], explanations, counts[SURVIVED]),
            left,
        )

    def _work(self, trials: Trials) -> None:
        kept = self._kept
        kept.reach = {test: kept.reach[test] for test in trials.tests if test in kept.reach}
        if new := [test for test in trials.tests if test not in kept.reach]:
            places = {
                place: name
                for source in self._sources
                for place, name in functions_of(source.path, source.module).items()
            }
            _say(f"{self._name}: looking at what {len(new)} tests reach")
            kept.reach.update(trials.reach(new, places, self._processes))
            kept.save()
        began = shown = time.monotonic()
        done = 0
        spent = 0.0
        seconds = {test: reach.seconds for test, reach in kept.reach.items()}
        try:
            for trial, end, took, test in trials.run(self._trials(), seconds, self._processes):
                mutant = self._mutants[trial.name]
                for each in trial.tests[: trial.tests.index(test) + 1] if test else trial.tests:
                    self._tallies[mutant.source.module, each][1] += 1
                if test:
                    self._tallies[mutant.source.module, test][0] += 1
                self._note(trial.name, end, test)
                done += 1
                spent += took
                if time.monotonic() - shown > _LINE_S:
                    shown = time.monotonic()
                    _say(f"{done} of {len(self._todo)} in {(shown - began) / 60:.0f} min, {spent / done:.2f} s each")
        finally:
            kept.save()
        if done:
            _say(f"{self._name}: {done} tried, {spent / done:.2f} s each")

    def _trials(self) -> Iterator[Trial]:
        for name in self._todo:
            mutant = self._mutants[name]
            if tests := self._tests(mutant):
                yield Trial(name, mutant.code, tests)
            else:
                self._note(name, SURVIVED, "")

    def _note(self, name: str, end: str, test: str) -> None:
        mutant = self._mutants[name]
        self._kept.ends[name] = [mutant.digest, end, test]
        self._kept.save(always=False)
        if end == SURVIVED and mutant.change not in explained():
            _say(f"survived: {mutant.change}")

    def _tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, up to a limit, those first that promise most for a second.

        That is whether they belong to the module's own file of tests, and how many mutants of the module they killed.
        Of a function that none reached when this was looked at, they are those that reach its module.
        """
        module, reach = mutant.source.module, self._kept.reach
        own = f"/test_{mutant.source.path.stem}"

        def cost(test: str) -> float:
            killed, tried = self._tallies[module, test]
            return (reach[test].seconds + 1e-3) * (tried + 1) / (killed + (0.5 if own in test else 0.1))

        found = [test for test, each in reach.items() if mutant.function in each.functions] or [
            test for test, each in reach.items() if any(name.startswith(f"{module}:") for name in each.functions)
        ]
        tests: list[str] = []
        seconds = 0.0
        for test in sorted(found, key=cost):
            if not tests or seconds + reach[test].seconds <= self._most_s:
                tests.append(test)
                seconds += reach[test].seconds
        return tests


def drawn(names: Iterable[str], count: int, seed: int) -> list[str]:
    """Return `count` of the names.  A name keeps its place among the others when some come or go."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]


def _choose_operators() -> None:
    """Leave out what types and messages tell, and turn `min` and `max`, which mutmut does not."""
    import libcst as cst
    from mutmut.mutation import mutators

    def turn_extremes(node: cst.Call) -> Iterator[cst.Call]:
        other = {"min": "max", "max": "min"}
        if isinstance(node.func, cst.Name) and node.func.value in other:
            yield node.with_changes(func=cst.Name(other[node.func.value]))

    def drop_keyword_arguments(node: cst.Call) -> Iterator[cst.Call]:
        for position, argument in enumerate(node.args):
            if argument.keyword is not None and len(node.args) > 1:
                yield node.with_changes(args=[*node.args[:position], *node.args[position + 1 :]])

    mutators.mutation_operators[:] = [
        (cst.BaseNumber, mutators.operator_number),
        (cst.Name, mutators.operator_name),
        (cst.AugAssign, mutators.operator_augmented_assignment),
        (cst.UnaryOperation, mutators.operator_remove_unary_ops),
        (cst.Call, turn_extremes),
        (cst.Call, drop_keyword_arguments),
        (cst.CSTNode, mutators.operator_keywords),
        (cst.CSTNode, mutators.operator_swap_op),
        (cst.Match, mutators.operator_match),
        (cst.IfExp, mutators.operator_if_exp),
    ]


def _say(line: str) -> None:
    print(line, file=sys.__stdout__, flush=True)


def _run(name: str, count: int, seed: int, processes: int, seconds: float) -> tuple[Row, list[Change]]:
    os.chdir(ROOT)
    os.environ |= {"HYPOTHESIS_PROFILE": PROFILE, "KINTUNE_FORBID_SKIPS": "", "OPENBLAS_NUM_THREADS": "1"}
    _choose_operators()
    return Run(name, count, seed, processes, seconds).go()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run drawn mutants of the parts that are named; return 1 if one survives that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--count", type=int, default=500, help="mutants to draw from each part")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="that run tests at a time")
    parser.add_argument("--seconds", type=float, default=_MOST_S, help="of a processor, for the tests of a mutant")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    rows: list[Row] = []
    left: list[Change] = []
    for name in chosen.parts or PARTS:
        with ProcessPoolExecutor(1, get_context("fork")) as fresh:  # each part imports its own tests
            row, found = fresh.submit(_run, name, chosen.count, chosen.seed, chosen.processes, chosen.seconds).result()
        rows.append(row)
        left += found
    for row in (tuple(field.replace("_", " ") for field in Row._fields), *rows):
        print("".join(f"{value!s:>11}" for value in row))
    for each in left:
        print(each)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
