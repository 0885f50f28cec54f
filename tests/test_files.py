from __future__ import annotations

import os
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.files import check_readable, check_writable, write_whole


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "out.kt", "the output") == tmp_path / "out.kt"
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_writable("a/../out.kt", "the output") == tmp_path / "out.kt"


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_writable("~/out.kt", "the output") == tmp_path / "out.kt"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (".", "the output . is a directory; name a file in it"),
        ("missing/out.kt", "there is no directory"),
        ("/proc/out.kt", "cannot write to /proc"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_writable(path, "the output")


def test_a_device_can_be_written_to() -> None:
    target = check_writable(os.devnull, "--json")
    write_whole(target, b"gone")
    assert Path(os.devnull).is_char_device()


def test_what_is_to_be_read_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "x.npz").touch()
    assert check_readable(tmp_path / "x.npz", "the inputs") == tmp_path / "x.npz"
    with pytest.raises(InputError, match=r"the inputs .*y\.npz does not exist"):
        check_readable(tmp_path / "y.npz", "the inputs")
    with pytest.raises(InputError, match="is a directory"):
        check_readable(tmp_path, "the inputs")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "report.json"
    write_whole(path, b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=r"cannot write .*report\.json: No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
