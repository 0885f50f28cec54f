"""The script that makes the environment, with a Python that only notes what it is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "runtime/src/kintune_runtime/libkintune.so"
READ = (
    *("pyproject.toml", "constraints.txt", "runtime/pyproject.toml", "runtime/build_library.py"),
    *("runtime/native/model.c", "runtime/src/kintune_runtime/include/kintune.h", LIBRARY),
)


class Setup:
    """A folder that looks like the repository, with spaces in its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in READ:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools/environment", folder / "tools")
        python = folder / "my venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\ncase "$1" in -m) echo "$*" >>asked ;; esac\n')
        python.chmod(0o755)

    def installs(self, *packages: str) -> bool:
        """Whether anything is installed when these packages are wanted."""
        asked = self.folder / "asked"
        asked.unlink(missing_ok=True)
        environment = {**os.environ, "VENV": "my venv"}
        subprocess.run([self.folder / "tools/environment", *packages], env=environment, check=True, capture_output=True)
        return asked.exists()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path / "the repository")


def test_nothing_is_done_where_all_is_there(setup: Setup) -> None:
    assert setup.installs()
    assert not setup.installs()
    (setup.folder / "constraints.txt").write_text("other versions")
    assert setup.installs()


def test_packages_that_were_installed_besides_are_known_afterwards(setup: Setup) -> None:
    assert setup.installs("ziglang")
    assert setup.installs("mkdocs-material")
    assert not setup.installs("ziglang")
    assert not setup.installs("ziglang", "mkdocs-material")
    assert setup.installs("torch", "ziglang")
    assert not setup.installs("mkdocs-material", "torch")


def test_a_library_that_is_gone_is_built_again(setup: Setup) -> None:
    setup.installs()
    (setup.folder / LIBRARY).unlink()
    assert setup.installs()
