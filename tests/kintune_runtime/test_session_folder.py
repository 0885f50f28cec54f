"""The folders from which onnxruntime loads Kintune's operators."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kintune_runtime.errors import RunError
from kintune_runtime.session_folder import LIBRARY, MODEL, make_folder, remove_abandoned

_HOLDER = """
import os, sys
from kintune_runtime.session_folder import make_folder
print(make_folder("/somewhere/model.kt").path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _age(path: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))


def test_a_folder_has_the_library_and_the_model() -> None:
    folder = make_folder("/somewhere/model.kt")
    assert (folder.path / LIBRARY).stat().st_size > 1000
    assert os.readlink(folder.path / MODEL) == "/somewhere/model.kt"
    folder.remove()
    assert not folder.path.exists()


def test_what_a_killed_process_left_is_removed_and_what_is_used_stays() -> None:
    mine = make_folder("/somewhere/model.kt")
    held = [
        subprocess.Popen([sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = []
    for process in held:
        assert process.stdout is not None
        paths.append(Path(process.stdout.readline().strip()))
    for path in (mine.path, *paths):
        assert path.is_dir()
        _age(path)
    held[0].kill()
    held[0].communicate()
    make_folder("/somewhere/model.kt").remove()
    assert [path.is_dir() for path in (mine.path, *paths)] == [True, False, True]
    held[1].communicate("")
    mine.remove()


def test_a_new_folder_is_not_taken_for_an_abandoned_one() -> None:
    folder = make_folder("/somewhere/model.kt")
    folder.release()
    remove_abandoned()
    assert folder.path.is_dir()
    _age(folder.path)
    remove_abandoned()
    assert not folder.path.exists()


def test_other_folders_and_links_stay(tmp_path: Path) -> None:
    other, target = tmp_path / "kintune-other", tmp_path / "target"
    for each in (other, target):
        each.mkdir()
        _age(each)
    link = tmp_path / "kintune-session-link"
    link.symlink_to(target)
    remove_abandoned()
    assert other.is_dir()
    assert target.is_dir()
    assert link.is_symlink()


def test_a_folder_that_cannot_be_filled_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(RunError, match="No space left on device"):
        make_folder("/somewhere/model.kt")
    assert list(tmp_path.iterdir()) == []


def test_no_folder_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(RunError, match="no folder for onnxruntime can be made"):
        make_folder("/somewhere/model.kt")
