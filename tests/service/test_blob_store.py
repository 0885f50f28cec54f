from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kintune.errors import InputError, StorageError, StorageFull
from kintune.service.blob_store import BlobStore, TooLarge


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for each in data:
        yield each


@pytest.fixture
def content(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "content")


def left(content: BlobStore, tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "content" / "incoming").iterdir()]


def test_what_is_put_lies_under_its_digest(content: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"hello")
    digest = content.put(tmp_path / "source")
    assert digest == hashlib.sha256(b"hello").hexdigest() == content.put_bytes(b"hello")
    assert content.path(digest).read_bytes() == b"hello"
    assert (content.has(digest), list(content.digests())) == (True, [digest])
    with content.open(digest) as file:
        assert file.read() == b"hello"
    assert left(content, tmp_path) == []


def test_what_nobody_changes_any_more_is_kept_without_a_copy(content: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "net.kt"
    source.write_bytes(b"hello")
    os.utime(source, (1, 1))
    for _ in range(2):  # twice, as by an orchestrator that was killed in between
        digest = content.keep(source)
        assert digest == hashlib.sha256(b"hello").hexdigest()
        assert content.path(digest).stat().st_ino == source.stat().st_ino
        assert content.path(digest).stat().st_mtime > 1  # else a sweep would take it for old
        assert left(content, tmp_path) == []
    source.unlink()
    assert content.path(digest).read_bytes() == b"hello"


def test_an_old_file_is_as_new_again(content: BlobStore) -> None:
    digest = content.put_bytes(b"hello")
    os.utime(content.path(digest), (1, 1))
    assert content.renew(digest)
    assert content.path(digest).stat().st_mtime > 1
    content.remove(digest)
    assert not content.renew(digest)
    assert not content.has(digest)


def test_what_lies_on_another_disk_is_copied(
    content: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    (tmp_path / "net.kt").write_bytes(b"hello")
    digest = content.keep(tmp_path / "net.kt")
    assert content.path(digest).read_bytes() == b"hello"
    assert left(content, tmp_path) == []


def test_what_is_gone_cannot_be_kept(content: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot use its disk"):
        content.keep(tmp_path / "gone")


def test_what_comes_in_pieces_is_kept_whole(content: BlobStore) -> None:
    digest, size = asyncio.run(content.receive(chunks(b"he", b"", b"llo"), most=5))
    assert (digest, size) == (hashlib.sha256(b"hello").hexdigest(), 5)
    assert content.path(digest).read_bytes() == b"hello"


def test_what_is_complete_is_examined_before_it_is_kept(content: BlobStore, tmp_path: Path) -> None:
    seen: list[tuple[bytes, str, int]] = []

    async def examine(path: Path, digest: str, size: int) -> None:
        seen.append((path.read_bytes(), digest, size))
        raise InputError("not wanted")

    with pytest.raises(InputError, match="not wanted"):
        asyncio.run(content.receive(chunks(b"he", b"llo"), most=5, examine=examine))
    assert seen == [(b"hello", hashlib.sha256(b"hello").hexdigest(), 5)]
    assert (list(content.digests()), left(content, tmp_path)) == ([], [])


def test_what_is_too_large_leaves_nothing(content: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="larger than"):
        asyncio.run(content.receive(chunks(b"hello", b"!"), most=5))
    assert list(content.digests()) == []
    assert left(content, tmp_path) == []


def test_a_sender_who_leaves_leaves_nothing(content: BlobStore, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"hel"
        raise ConnectionResetError

    with pytest.raises(StorageError):
        asyncio.run(content.receive(broken(), most=100))
    assert list(content.digests()) == []
    assert left(content, tmp_path) == []


def test_a_full_disk_is_told(content: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match="nothing was kept"):
        content.put_bytes(b"hello")
    assert list(content.digests()) == []
    assert left(content, tmp_path) == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "/x", "0" * 64 + "\n"])
def test_what_is_no_digest_names_no_file(content: BlobStore, name: str) -> None:
    with pytest.raises(InputError, match="no digest"):
        content.path(name)


def test_what_is_gone_is_said_to_be(content: BlobStore) -> None:
    with pytest.raises(StorageError, match="is gone from the store"):
        content.open("0" * 64)
    content.remove("0" * 64)


def test_what_was_broken_off_is_swept_away(content: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "content" / "incoming" / "half").write_bytes(b"hel")
    content.sweep_incoming(float("inf"))
    assert left(content, tmp_path) == []
