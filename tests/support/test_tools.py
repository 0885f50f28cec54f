"""Optional tools, tried on sessions of their own in which a program and a package of this test play the tools."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import HIDE, TOOLS, WITHOUT, missing

ROOT = Path(__file__).parents[2]

MODULE = """
import os, shutil, sys
import pytest
import torch

@pytest.mark.needs("aarch64-linker")
def test_with_the_linker(): assert shutil.which("ld.lld")

def test_without_a_mark(): assert shutil.which("ld.lld") is None and shutil.which("sh")

def test_a_package_that_the_module_binds():
    import torch as again
    assert again is torch
"""
UNBOUND = """
import importlib.util, os, subprocess, sys
import pytest

finds_torch = [sys.executable, "-c", "import torch"]

def test_without_a_mark():
    assert subprocess.run(finds_torch, stderr=subprocess.DEVNULL).returncode == 1
    assert importlib.util.find_spec("torch") is None and "torch" not in sys.modules
    with pytest.raises(ImportError):
        import torch
    assert "KINTUNE_TEST_POSTGRES" not in os.environ

@pytest.mark.needs("torch")
def test_with_a_mark():
    import torch
    assert torch.real == "no"
    assert subprocess.run(finds_torch).returncode == 0

@pytest.mark.may_use("torch")
def test_takes_it():
    import torch
"""
REQUIRING = """
from tests.support.tools import require
torch = require("torch")

def test_uses_it(): assert torch
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment with a linker and a package called torch, neither real."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ld.lld").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "ld.lld").chmod(0o755)
    (tmp_path / "packages" / "torch").mkdir(parents=True)
    (tmp_path / "packages" / "torch" / "__init__.py").write_text("real = 'no'\n")
    kept = {name: value for name, value in os.environ.items() if name not in (HIDE, WITHOUT, "KINTUNE_FORBID_SKIPS")}
    packages = os.pathsep.join([str(tmp_path / "packages"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **kept,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": packages,
        "KINTUNE_TEST_POSTGRES": "postgresql://nowhere",
    }


def session(folder: Path, machine: dict[str, str], **files: str) -> str:
    """Run pytest on modules under the plugin alone, and return its last lines."""
    tests = folder / "tests_of_it"
    tests.mkdir()
    (tests / "conftest.py").write_text(
        "from tests.support.tools import OptionalTools\n"
        "def pytest_configure(config): config.pluginmanager.register(OptionalTools())\n"
    )
    for name, text in files.items():
        (tests / f"test_{name}.py").write_text(text)
    options = ["-q", "-ra", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tests)]
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    return subprocess.run(command, env=machine, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_a_test_finds_only_what_it_names(tmp_path: Path, machine: dict[str, str]) -> None:
    said = session(tmp_path, machine, module=MODULE, unbound=UNBOUND, requiring=REQUIRING)
    assert "7 passed" in said, said


def test_hidden_tools_are_skipped_with_what_to_install(tmp_path: Path, machine: dict[str, str]) -> None:
    marked = UNBOUND.partition("@pytest.mark.may_use")[0]
    said = session(tmp_path, {**machine, HIDE: "all"}, unbound=marked, requiring=REQUIRING)
    assert "1 passed, 2 skipped" in said, said
    assert "PyTorch is hidden by KINTUNE_HIDE_TOOLS; otherwise: make setup EXTRA_PACKAGES=torch" in said


def test_an_unknown_name_is_an_error(tmp_path: Path, machine: dict[str, str]) -> None:
    assert session(tmp_path, {**machine, HIDE: "hammer"}, requiring=REQUIRING) == ""
    (tmp_path / "2").mkdir()
    said = session(tmp_path / "2", machine, x="import pytest\n@pytest.mark.needs('hammer')\ndef test_it(): pass\n")
    assert "passed" not in said


@pytest.mark.parametrize("name", TOOLS)
def test_what_is_missing_is_said_with_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("KINTUNE_TEST_POSTGRES", raising=False)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert missing(name) == f"{TOOLS[name].what} is missing: {TOOLS[name].get}"


def test_no_test_skips_by_itself_for_lack_of_a_tool() -> None:
    own = {ROOT / "tests" / "test_conftest.py", ROOT / "tests" / "support" / "tools.py", Path(__file__)}
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if path not in own and re.search(r"importorskip|is not installed\"\)", path.read_text())
    ]
    assert found == []
