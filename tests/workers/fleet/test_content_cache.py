from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.workers.fleet.content_cache import (
    CACHE_VARIABLE,
    ContentCache,
    ContentMismatch,
    FileContent,
    FileDigests,
    cache_directory,
)
from kintune.workers.fleet.ownership import owner


def content(data: bytes) -> FileContent:
    return FileContent(len(data), hashlib.sha256(data).hexdigest())


def keep(cache: ContentCache, data: bytes) -> Path:
    arrival = cache.begin("net.onnx", content(data))
    assert arrival.take(0, data)
    return arrival.finish()


def test_what_was_kept_is_found_by_what_is_in_it(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "cache")
    assert cache.find(content(b"weights")) is None
    kept = keep(cache, b"weights")
    assert cache.find(content(b"weights")) == kept
    assert kept.read_bytes() == b"weights"
    assert ContentCache(tmp_path / "cache").find(content(b"weights")) == kept
    assert cache.find(content(b"others.")) is None


def test_a_damaged_file_is_removed(tmp_path: Path) -> None:
    kept = keep(ContentCache(tmp_path), b"weights")
    kept.chmod(0o644)
    kept.write_bytes(b"damaged")
    assert ContentCache(tmp_path).find(content(b"weights")) is None
    assert not kept.exists()


def test_a_file_whose_time_of_use_may_not_be_set_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another user's, or the file system is mounted read-only."""
    kept = keep(ContentCache(tmp_path), b"weights")
    refusals: list[OSError] = [PermissionError(errno.EPERM, "no"), OSError(errno.EROFS, "no"), FileNotFoundError()]

    def refuse(*_: object, **__: object) -> None:
        raise refusals.pop(0)

    monkeypatch.setattr(os, "utime", refuse)
    found = [ContentCache(tmp_path).find(content(b"weights")) for _ in range(3)]
    assert found == [kept, kept, None]


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path, most_bytes=10)
    first, second = keep(cache, b"1234"), keep(cache, b"5678")
    os.utime(first, ns=(1, first.stat().st_mtime_ns))
    os.utime(second, ns=(2, second.stat().st_mtime_ns))
    assert cache.find(content(b"1234")) == first  # which makes it the last that was used
    third = keep(cache, b"abcd")
    assert sorted(tmp_path.iterdir()) == sorted((first, third))


def test_what_dead_processes_left_half_arrived_goes(tmp_path: Path) -> None:
    ours, _, _ = owner().partition("-")
    (tmp_path / f".arriving-{ours}-999999999-x").touch()
    mine = tmp_path / f".arriving-{owner()}-x"
    mine.touch()
    kept = keep(ContentCache(tmp_path), b"weights")
    assert sorted(tmp_path.iterdir()) == sorted((mine, kept))


def test_what_another_machine_writes_into_a_directory_that_both_see_stays_while_it_grows(tmp_path: Path) -> None:
    """No process of that number is here."""
    theirs, old = tmp_path / ".arriving-0123456789ab-999999999-x", tmp_path / ".arriving-0123456789ab-999999998-x"
    for path in (theirs, old):
        path.touch()
    os.utime(old, (1, 1))
    kept = keep(ContentCache(tmp_path), b"weights")
    assert sorted(tmp_path.iterdir()) == sorted((theirs, kept))


def test_two_can_bring_the_same_file_at_once(tmp_path: Path) -> None:
    """Of the same number, perhaps: containers have processes of their own."""
    arrivals = [ContentCache(tmp_path).begin("net.onnx", content(b"weights")) for _ in range(2)]
    assert not arrivals[0].take(0, b"wei")
    assert arrivals[1].take(0, b"weights")
    assert arrivals[1].finish().read_bytes() == b"weights"
    assert arrivals[0].take(3, b"ghts")
    assert arrivals[0].finish().read_bytes() == b"weights"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_another_process_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = list(Path.iterdir(keep(ContentCache(tmp_path), b"weights").parent))
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self / "gone", self / ".arriving-gone", *there]))
    assert keep(ContentCache(tmp_path), b"more").read_bytes() == b"more"


def test_what_is_not_what_was_announced_is_not_kept(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    arrival = cache.begin("net.onnx", content(b"weights"))
    assert arrival.take(0, b"weighty")
    with pytest.raises(ContentMismatch):
        arrival.finish()
    for offset, data in ((1, b"eights"), (0, b"weights and more")):
        arrival = cache.begin("net.onnx", content(b"weights"))
        with pytest.raises(ContentMismatch):
            arrival.take(offset, data)
        arrival.drop()
    assert cache.find(content(b"weights")) is None


def test_one_line_says_that_there_is_no_room(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"vast.onnx is too large for this machine: it has \d+ MB, and \d+ MB"):
        ContentCache(tmp_path).begin("vast.onnx", FileContent(1 << 60, "0" * 64))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"net.onnx cannot be kept in .*file: "):
        ContentCache(tmp_path / "file").begin("net.onnx", content(b""))


def test_a_file_is_read_again_only_if_it_looks_otherwise(tmp_path: Path) -> None:
    digests, file = FileDigests(), tmp_path / "net.onnx"
    file.write_bytes(b"one")
    os.utime(file, ns=(5, 5))
    assert digests.known(file) is None
    assert digests.of(file) == content(b"one")
    file.write_bytes(b"two")
    os.utime(file, ns=(5, 5))
    assert digests.of(file) == content(b"one")
    digests.forget(file)
    assert digests.of(file) == content(b"two")
    os.utime(file, ns=(5, 6))
    assert digests.known(file) is None
    with pytest.raises(OSError, match="directory"):
        digests.of(tmp_path)


def test_the_environment_can_name_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv(CACHE_VARIABLE)
    assert cache_directory().name == "files"
