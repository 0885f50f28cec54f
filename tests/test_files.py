from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.files import (
    NoRegularFile,
    check_readable,
    check_writable,
    expanded,
    move_into_place,
    open_regular,
    readable_files,
    write_whole,
)


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "out.kt", "the output") == tmp_path / "out.kt"
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_writable("a/../out.kt", "the output") == tmp_path / "out.kt"


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_writable("~/out.kt", "the output") == tmp_path / "out.kt"


def test_a_name_that_only_begins_with_a_tilde_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("~nobody's.npz").write_bytes(b"data")
    assert check_readable("~nobody's.npz", "the file") == tmp_path / "~nobody's.npz"
    assert check_writable("~nobody's.kt", "the output") == tmp_path / "~nobody's.kt"
    assert expanded("~no such user/x") == Path("~no such user/x")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / ("a" * 300), tmp_path / ("a/" * 3000)):
        for refuses in (check_writable, check_readable, lambda path, what: readable_files(path, ".npz", what)):
            with pytest.raises(InputError, match=r"the file .* cannot be used: File name too long"):
                refuses(path, "the file")


def test_a_name_too_long_for_what_is_written_beside_it_is_refused_before_any_work(tmp_path: Path) -> None:
    assert check_writable(tmp_path / ("a" * 187 + ".kt"), "the output")
    with pytest.raises(InputError, match="its name has 191 bytes; choose one of at most 190"):
        check_writable(tmp_path / ("a" * 188 + ".kt"), "the output")


def test_a_pipe_or_a_directory_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "a directory")):
        with pytest.raises(NoRegularFile, match=said):
            open_regular(path)


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


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(check_writable(pipe, "--json", stream=True), b"text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"new")
    with pytest.raises(InputError, match=r"the output .*pipe is a device or a pipe, which a file cannot replace"):
        check_writable(pipe, "the output")
    with pytest.raises(OSError, match="a device or a pipe"):
        move_into_place(file, pipe)
    assert pipe.is_fifo()
    assert file.read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        write_whole(check_writable(device, "--json", stream=True), b"gone")
    except PermissionError:
        pytest.skip("devices cannot be made or opened here")
    with pytest.raises(InputError, match="is a device"):
        check_writable(device, "the output")
    assert device.is_char_device()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for name in ("there.kt", "later.kt"):
        link, real = tmp_path / name, tmp_path / "store" / name
        link.symlink_to(real)
        if name == "there.kt":
            real.write_bytes(b"old")
        assert check_writable(link, "the output") == real
        write_whole(link, b"new")
        assert real.read_bytes() == b"new"
        (tmp_path / "made").write_bytes(b"newer")
        move_into_place(tmp_path / "made", link)
        assert real.read_bytes() == b"newer"
        assert link.is_symlink()


_SAYS = """
import sys
from pathlib import Path
from kintune.files import check_writable, write_whole
print("before")
write_whole(check_writable(sys.argv[1], "--json", stream=True), b"text\\n")
print("after")
"""


def test_what_standard_output_goes_to_is_not_replaced(tmp_path: Path) -> None:
    link, out = tmp_path / "stdout", tmp_path / "out.json"
    link.symlink_to("/proc/self/fd/1")
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", _SAYS, link], stdout=file, check=True)
    assert out.read_text() == "before\ntext\nafter\n"
    assert link.is_symlink()


def test_a_place_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(place)
    for check in (check_writable, check_readable):
        with pytest.raises(InputError, match=r"\\xff/x' is not UTF-8"):
            check(f"{place}/x", "the file")


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
