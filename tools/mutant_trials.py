"""Run tests on mutants, each in a copy of one process that has imported the tests.

The process collects the tests once, by pytest, and runs none itself.  For each mutant it forks: the copy gives the
function of the mutant its other code, and runs the tests that it is told until one fails.  Which test reaches which
function is found out in such a copy as well.  Processes that a test starts take part by `sitecustomize`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import mmap
import os
import resource
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

__all__ = ["KILLED", "LATE", "SURVIVED", "Code", "End", "Reach", "Trial", "Trials", "functions_of", "join_in"]

KILLED, LATE, SURVIVED = "killed", "timeout", "survived"

_VARIABLE = "KINTUNE_MUTANT"  # names a folder for the processes that tests start
_FAILED, _BROKEN = 1, 3  # how a copy ends: a test failed, or it could not run the tests
_CPU_S, _WALL_S, _FACTOR = 3.0, 40.0, 10.0  # a test may take so long besides ten times what it takes without a mutant
_MEMORY = 8 << 30  # bytes of data that a copy may have

_AT_START = """
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
sys.path.insert(0, {tools!r})
try:
    import mutant_trials
finally:
    del sys.path[0]
mutant_trials.join_in()
others = PathFinder.find_spec("sitecustomize", [each for each in sys.path if each != {here!r}])
if others is not None:
    others.loader.exec_module(module_from_spec(others))
"""


class Code(NamedTuple):
    """A function with other code: `source` defines it, inside of a class of the same name if there is a `scope`."""

    module: str
    scope: str
    function: str
    source: str

    def apply(self, module: ModuleType) -> None:
        """Let the function of the module run this code, wherever it was imported to."""
        namespace = dict(vars(module))
        exec(compile(self.source, str(module.__file__), "exec"), namespace)
        old, new = (
            getattr(found, "__func__", found)
            for names in (vars(module), namespace)
            for found in ((vars(names[self.scope]) if self.scope else names)[self.function],)
        )
        old.__code__ = new.__code__
        if old.__defaults__ != new.__defaults__ or old.__kwdefaults__ != new.__kwdefaults__:
            old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


class Reach(NamedTuple):
    """What a test reaches: names of functions; and the seconds of processors that it takes."""

    seconds: float
    functions: frozenset[str]


class Trial(NamedTuple):
    """A mutant by its name, its code, and the tests to run, in this order."""

    name: str
    code: Code
    tests: Sequence[str]


class End(NamedTuple):
    """How a trial ended, after how many seconds of a processor, and in which test."""

    trial: Trial
    end: str
    seconds: float
    test: str


def functions_of(path: Path, module: str) -> dict[tuple[str, int], str]:
    """The functions of a file, as `module:Class.method`, by the file and the first line of all code in them."""
    found: dict[tuple[str, int], str] = {}

    def note(code: CodeType, name: str) -> None:
        found[str(path), code.co_firstlineno] = f"{module}:{name}"
        for each in _inside(code):
            note(each, name)

    def visit(code: CodeType, prefix: str) -> None:
        for each in _inside(code):
            if each.co_flags & 1:  # CO_OPTIMIZED: a function, and not the body of a class
                note(each, prefix + each.co_name)
            else:
                visit(each, f"{prefix}{each.co_name}.")

    visit(compile(path.read_text(), str(path), "exec"), "")
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _trace(places: Mapping[tuple[str, int], str], reached: set[str]) -> None:
    """Note from now on which of the functions are called, in all threads."""

    def noticed(frame: Any, event: str, argument: object) -> None:
        function = places.get((frame.f_code.co_filename, frame.f_code.co_firstlineno))
        if function is not None:
            reached.add(function)

    threading.settrace(noticed)
    sys.settrace(noticed)


def join_in() -> None:
    """In a process that a test has started: note what is called, or let a function run the code of the mutant."""
    folder = os.environ.get(_VARIABLE)
    if folder is None:
        return
    told = json.loads((Path(folder) / "told.json").read_text())
    if isinstance(told, dict):
        import atexit

        places = {(file, int(line)): name for place, name in told.items() for file, _, line in [place.rpartition(":")]}
        reached: set[str] = set()
        _trace(places, reached)
        atexit.register(lambda: (Path(folder) / f"reached-{os.getpid()}.json").write_text(json.dumps(sorted(reached))))
    else:
        sys.meta_path.insert(0, _Finder(Code(*told)))


class _Finder(importlib.abc.MetaPathFinder):
    """Gives a function of a module other code when the module is imported."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._code.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            plain = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                plain(module)
                self._code.apply(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


class Trials:
    """The process that has imported the tests; a plugin of pytest.

    `work` is called with it once the tests are collected.
    """

    def __init__(self, modules: Iterable[str], folder: Path, work: Callable[[Trials], None]) -> None:
        self._modules, self._folder, self._work = sorted(modules), folder, work
        self._items: dict[str, Any] = {}
        self._failed = False
        self._error: BaseException | None = None

    def collect(self, arguments: Sequence[str]) -> None:
        """Let pytest collect the tests, and do the work.

        Raises:
            SystemExit: pytest could not collect them.
        """
        import pytest

        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        (self._folder / "sitecustomize.py").write_text(
            _AT_START.format(tools=str(Path(__file__).parent), here=str(self._folder))
        )
        sys.path.append(str(self._folder))  # some tests give their own path to processes
        log = self._folder / "log.txt"
        with log.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            end = pytest.main([*arguments, f"--basetemp={self._folder / 'tests'}"], plugins=[self])
        if self._error is not None:
            raise self._error
        if end != pytest.ExitCode.OK:
            raise SystemExit(f"pytest could not collect the tests:\n{log.read_text()}")

    @property
    def tests(self) -> list[str]:
        """All tests that were collected."""
        return list(self._items)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Work instead of running the tests; pytest calls it after it has collected them."""
        if session.testsfailed:
            return False
        self._items = {item.nodeid: item for item in session.items}
        for name in self._modules:
            importlib.import_module(name)
        tools = session.config.pluginmanager.get_plugin("kintune-optional-tools")
        tools.before_copies()
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self._folder), os.environ.get("PYTHONPATH")]))
        gc.collect()
        gc.freeze()
        try:
            self._work(self)
        except BaseException as error:
            self._error = error
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note whether a step of a test failed; pytest calls it after each."""
        self._failed |= report.failed

    def reach(self, tests: Sequence[str], places: Mapping[tuple[str, int], str], processes: int) -> dict[str, Reach]:
        """Run the tests without any mutant and see which of the functions each of them reaches.

        Each test makes all its fixtures itself, also those of the session.

        Raises:
            SystemExit: one of them fails.
        """
        told = {f"{file}:{line}": name for (file, line), name in places.items()}
        answers = [self._folder / f"reach-{slot}.json" for slot in range(processes)]

        def measure(folder: Path, slot: int) -> None:
            found: dict[str, tuple[float, list[str]]] = {}
            reached: set[str] = set()
            _trace(places, reached)
            for test in tests[slot::processes]:
                began = os.times()
                self._test(test, None)
                seconds = sum(os.times()[:4]) - sum(began[:4])
                for elsewhere in folder.glob("reached-*.json"):
                    reached.update(json.loads(elsewhere.read_text()))
                    elsewhere.unlink()
                found[test] = seconds, sorted(reached)
                reached.clear()
                if self._failed:
                    raise SystemExit(f"a test fails without any mutant: {test}")
            answers[slot].write_text(json.dumps(found))

        slots = {self._copy(slot, told, partial(measure, slot=slot)): slot for slot in range(processes)}
        ends = {slots[pid]: status for pid, status in (os.waitpid(pid, 0) for pid in slots)}
        if failed := [self._log(slot).read_text() for slot, status in ends.items() if status]:
            raise SystemExit(failed[0])
        found = {test: each for answer in answers for test, each in json.loads(answer.read_text()).items()}
        return {test: Reach(seconds, frozenset(names)) for test, (seconds, names) in found.items()}

    def run(self, trials: Iterable[Trial], seconds: Mapping[str, float], processes: int) -> Iterator[End]:
        """Try the mutants in as many processes at a time; `seconds` are what the tests take without one.

        Trials are asked for when there is a free process.

        Raises:
            SystemExit: a copy could not run the tests.
        """
        waiting = iter(trials)
        free = list(range(processes))
        running: dict[int, tuple[int, Trial, mmap.mmap]] = {}
        try:
            while True:
                while free and (trial := next(waiting, None)) is not None:
                    slot = free.pop()
                    at = mmap.mmap(-1, 4)  # which test is running
                    pid = self._copy(slot, trial.code, partial(self._try, trial=trial, at=at, seconds=seconds))
                    running[pid] = slot, trial, at
                if not running:
                    return
                pid, status, used = os.wait4(-1, 0)
                if pid not in running:
                    continue
                slot, trial, at = running.pop(pid)
                free.append(slot)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what the tests have left
                code = os.waitstatus_to_exitcode(status)
                test = trial.tests[int.from_bytes(at[:], "little")]
                at.close()
                if code == _BROKEN:
                    raise SystemExit(f"{trial.name} cannot be tried: {self._log(slot).read_text()}")
                late = code in (-signal.SIGPROF, -signal.SIGALRM)
                end = SURVIVED if code == 0 else LATE if late else KILLED
                yield End(trial, end, used.ru_utime + used.ru_stime, test if code else "")
        finally:
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _try(self, folder: Path, trial: Trial, at: mmap.mmap, seconds: Mapping[str, float]) -> None:
        trial.code.apply(sys.modules[trial.code.module])
        for place, (test, following) in enumerate(zip(trial.tests, [*trial.tests[1:], None], strict=True)):
            at[:] = place.to_bytes(4, "little")
            usual = seconds[test]
            signal.setitimer(signal.ITIMER_PROF, _CPU_S + _FACTOR * usual)
            signal.setitimer(signal.ITIMER_REAL, _WALL_S + 3 * _FACTOR * usual)
            self._test(test, following)
            if self._failed:
                os._exit(_FAILED)

    def _test(self, test: str, following: str | None) -> None:
        item = self._items[test]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=self._items.get(following or ""))
        if self._failed:
            item.session._setupstate.teardown_exact(None)

    def _copy(self, slot: int, told: object, act: Callable[[Path], None]) -> int:
        """Let a copy of this process act, in a folder of its own; return the number of the process."""
        folder = self._folder / str(slot)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        pid = os.fork()
        if pid:
            return pid
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            (folder / "told.json").write_text(json.dumps(told))
            os.environ[_VARIABLE] = str(folder)
            factory = next(iter(self._items.values())).config._tmp_path_factory
            factory._given_basetemp, factory._basetemp = folder / "tests", None
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            for number in (signal.SIGPROF, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            act(folder)
            code = 0
        except BaseException:
            self._log(slot).write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _log(self, slot: int) -> Path:
        return self._folder / f"error-{slot}.txt"
