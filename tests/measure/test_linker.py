from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import OrderError
from kintune.measure.linker import find_linker


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_named_one_comes_first_then_the_usual_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    clang = program(tmp_path, "clang")
    assert find_linker() == clang
    cc = program(tmp_path, "cc")
    assert find_linker() == cc
    monkeypatch.setenv("CC", program(tmp_path, "mine"))
    assert find_linker() == str(tmp_path / "mine")


def test_a_machine_without_one_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(OrderError, match="install gcc or clang"):
        find_linker()
