"""Mutation testing: change one place of the sources at a time, and see whether the tests of that part notice.

`mutmut` writes the mutants and forks a process that has imported the tests for each of them.  This adds what a draw
needs: parts of the sources with their tests, mutants drawn by a seed, survivors that are explained in
`tests/mutants.toml`, and results that are kept in `build/mutants`, so that a run goes on where one ended.  A mutant is
run again after its function changed, and one that survived after a test changed.  It is tried by the tests that
reach its function, the quickest ones, a minute long: what only a whole search notices counts as survived.

Comparisons, arithmetic, numbers, conditions, `min` and `max`, truth values, branches, cases and keyword arguments are
changed.  Strings, arguments replaced by None, and `strict=True` are not: types, or readers of messages, tell these.
Decorated functions (other than static and class methods) and statements of modules and classes are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

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

_MOST_S = 60.0  # of tests that a mutant is tried by, the quickest first
_CONSTANT_S, _FACTOR = 4.0, 4.0  # a mutant may take this much longer than its tests: seconds, then times
_PROGRAMS = ("cc", "c++", "gcc", "g++", "as", "ld", "ar", "sh")  # all that these tests start
_NO_RUN = 255  # how a process ends that could not run pytest
_LINE_S = 60.0  # between two lines of progress


class Part(NamedTuple):
    """Files that are mutated, as patterns, and the tests that have to notice."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


def _subpackage(name: str) -> Part:
    return Part((f"src/kintune/{name}/*",), (f"tests/{name}",))


_READERS = ("weighted_sum", "convolution", "byte_workload", "blockwise_workload")

PARTS: Mapping[str, Part] = {
    **{name: _subpackage(name) for name in ("core", "search", "scheduler", "validate", "records")},
    "readers": Part(
        tuple(f"src/kintune/compiler/programs/{name}.py" for name in _READERS),
        ("tests/compiler/programs/test_readers.py",),
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
        """Whether it changes more than the check that two sequences have one length."""
        plain = [re.sub(r"(, )?strict=(True|False)|, (?=\))", "", line) for line in (self.before, self.after)]
        return plain[0] != plain[1]

    def __str__(self) -> str:
        return f"{self.function}\n    - {self.before}\n    + {self.after}"


def explained(path: Path = EXPLAINED) -> dict[Change, str]:
    """The mutants that may survive, with the reason of each."""
    entries = tomllib.loads(path.read_text())["mutant"]
    return {Change(each["of"], each["before"], each["after"]): each["reason"] for each in entries}


class Mutants:
    """The mutants of one part, in a folder of their own with copies of sources and tests."""

    def __init__(self, name: str) -> None:
        self._part = PARTS[name]
        self._folder = WORK / name
        self._log = self._folder / "log.txt"
        self._paths: dict[str, Path] = {}

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Write the mutants and find out which tests reach which function; the folder is the current one meanwhile."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for shared in ("src", "tests", "docs", "pyproject.toml"):
            if not (self._folder / shared).exists():
                (self._folder / shared).symlink_to(ROOT / shared)
        (self._folder / "setup.cfg").write_text(self._settings())
        copy = self._folder / "mutants"
        os.environ["PYTHONPATH"] = str(copy / "src")
        os.environ["HYPOTHESIS_PROFILE"] = PROFILE
        os.environ["KINTUNE_FORBID_SKIPS"] = ""
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{_programs()}"
        before = Path.cwd()
        os.chdir(self._folder)
        try:
            self._prepare()
            yield
        finally:
            os.chdir(before)

    def names(self) -> list[str]:
        """All mutants, by the names that mutmut gives them."""
        self._paths = {name: data.path for data in self._data() for name in data.exit_code_by_key}
        return list(self._paths)

    def drawn(self, count: int, seed: int) -> list[str]:
        """The first `count` mutants of a draw."""
        order = iter(drawn(self.names(), len(self.names()), seed))
        return list(itertools.islice((name for name in order if self.change(name).matters), count))

    def run(self, names: Sequence[str], say: Any = print) -> dict[str, str]:
        """Run the tests on these mutants, except on those whose result is known; return how each ended."""
        from mutmut.runners.harness import PytestRunner
        from mutmut.stats import status_by_exit_code
        from mutmut.workers.isolation import ForkServerRunner

        owner = {name: data for data in self._data() for name in data.exit_code_by_key}
        todo = [name for name in names if owner[name].exit_code_by_key[name] is None]
        runner = ForkServerRunner(1, PytestRunner, {})
        runner.startup()
        began = shown = time.monotonic()
        try:
            for done, name in enumerate(todo):
                tests, seconds = self._tests(name)
                runner.submit(name, tests, ceil((seconds + _CONSTANT_S) * _FACTOR * 2), seconds)
                result = runner.wait_for_result()
                if result.exit_code == _NO_RUN:
                    raise SystemExit(f"pytest could not run the tests of {name}")
                data = owner[name]
                data.exit_code_by_key[name] = result.exit_code
                data.save()
                if status_by_exit_code[result.exit_code] in ("survived", "no tests"):
                    say(f"survived: {change(name, data.path)}")
                if time.monotonic() - shown > _LINE_S:
                    shown = time.monotonic()
                    say(f"{done + 1} of {len(todo)} in {(shown - began) / 60:.0f} min")
            runner.signal_work_complete()
        except KeyboardInterrupt:
            runner.stop_all_workers()
            raise
        finally:
            runner.shutdown()
        return {name: status_by_exit_code[owner[name].exit_code_by_key[name]] for name in names}

    def change(self, name: str) -> Change:
        """What a mutant changes."""
        return change(name, self._paths[name])

    def _tests(self, name: str) -> tuple[list[str], float]:
        """Return the tests that reach a mutant, up to a limit, and the seconds that they take.

        Those of the module's own file of tests come first, then the quickest.
        """
        from mutmut.state import state

        durations = state().duration_by_test
        reached = state().tests_by_mangled_function_name.get(name.partition("__mutmut_")[0], ())
        own = f"/test_{self._paths[name].stem}"
        tests: list[str] = []
        seconds = 0.0
        for test in sorted(reached, key=lambda each: (own not in each, durations[each])):
            if tests and seconds + durations[test] > _MOST_S:
                break
            tests.append(test)
            seconds += durations[test]
        return tests, seconds

    def _settings(self) -> str:
        lists = {
            "source_paths": ["src"],
            "only_mutate": self._part.sources,
            "also_copy": ["docs"],
            "pytest_add_cli_args": ["-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"],
            "pytest_add_cli_args_test_selection": self._part.tests,
        }
        lines = [f"{key}=\n" + "".join(f"    {value}\n" for value in values) for key, values in lists.items()]
        single = {"process_isolation": "forkserver", "track_dependencies": "false", "use_git_change_detection": "false"}
        return "[mutmut]\n" + "".join([*lines, *(f"{key}={value}\n" for key, value in single.items())])

    def _prepare(self) -> None:
        import mutmut.__main__ as program
        from mutmut import _reset_globals
        from mutmut.mutation import trampoline
        from mutmut.mutation.trampoline import set_mutant_under_test
        from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths
        from mutmut.workers.isolation import ForkServerRunner, PytestRunner

        _reset_globals()
        _choose_operators()
        trampoline.get_mutant_under_test = lambda: trampoline._mutant_under_test  # the environment is slow to read
        set_mutant_under_test("mutant_generation")
        with self._log.open("w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            (self._folder / "mutants").mkdir(exist_ok=True)
            copy_src_dir()
            copy_also_copy_files()
            setup_source_paths()
            program.create_mutants(1)
            self._forget()
        try:
            program.collect_or_load_stats(ForkServerRunner(1, PytestRunner, {}))
        except SystemExit:
            raise SystemExit(f"the tests fail without any mutant: pytest -x {' '.join(self._part.tests)}") from None
        finally:
            set_mutant_under_test("")

    def _forget(self) -> None:
        """Forget which functions the tests of changed files reach, and which mutants survived before."""
        digests, stats = self._folder / "tests.json", self._folder / "mutants" / "mutmut-stats.json"
        before = json.loads(digests.read_text()) if digests.exists() else {}
        now = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in self._test_files()}
        changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
        if not changed:
            return
        if any(path.endswith("conftest.py") for path in changed):
            stats.unlink(missing_ok=True)
        if stats.exists():
            kept = json.loads(stats.read_text())
            times = kept["duration_by_test"]
            kept["duration_by_test"] = {t: s for t, s in times.items() if t.partition("::")[0] not in changed}
            stats.write_text(json.dumps(kept))
        for data in self._data():
            for name, code in data.exit_code_by_key.items():
                if code in (0, 5, 33):
                    data.exit_code_by_key[name] = None
            data.save()
        digests.write_text(json.dumps(now))

    def _test_files(self) -> Iterable[Path]:
        for place in map(Path, self._part.tests):
            yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]

    def _data(self) -> list[Any]:
        from mutmut.mutation.data import SourceFileMutationData
        from mutmut.utils.file_utils import walk_mutatable_files

        found = [SourceFileMutationData(path=path) for path in sorted(walk_mutatable_files())]
        for data in found:
            data.load()
        return found


def _programs() -> Path:
    """A folder with links to few programs; of a longer search path, each run would hide optional tools anew."""
    folder = WORK / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PROGRAMS:
        if (found := shutil.which(name)) and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder


def change(name: str, path: Path) -> Change:
    """What the mutant of this name changes in the file."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    before, after = (" ".join(" ".join(line[1:] for line in lines if line[0] == sign).split()) for sign in "-+")
    module, _, function = name.partition("__mutmut_")[0].removeprefix("kintune.").rpartition(".")
    return Change(f"{module}:{function[2:].replace('ǁ', '.')}", before, after)


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


def drawn(names: Iterable[str], count: int, seed: int) -> list[str]:
    """Return `count` of the names.  A name keeps its place among the others when some come or go."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run drawn mutants of the parts that are named; return 1 if one survives that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--count", type=int, default=500, help="mutants to draw from each part")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    known = explained()
    rows, left = [], []
    for name in chosen.parts or PARTS:
        mutants = Mutants(name)
        with mutants.prepared():
            places = mutants.names()
            draw = mutants.drawn(chosen.count, chosen.seed)
            ends = mutants.run([each for each in draw if mutants.change(each) not in known])
            found = [mutants.change(each) for each, end in ends.items() if end in ("survived", "no tests")]
        left += found
        late = Counter(ends.values())["timeout"]
        killed = len(ends) - len(found) - late
        rows.append((name, len(places), len(draw), killed, late, len(draw) - len(ends), len(found)))
    heads = ("part", "places", "drawn", "killed", "timed out", "explained", "survived")
    for row in (heads, *rows):
        print("".join(f"{value!s:>11}" for value in row))
    for each in left:
        print(each)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
