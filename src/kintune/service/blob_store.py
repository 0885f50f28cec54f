"""Files by the digest of their content: uploads, executables, reports."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from kintune.errors import InputError, StorageError, StorageFull
from kintune.files import sha256_of

__all__ = ["BlobStore", "Digest", "TooLarge"]

Digest = str
"""The SHA-256 of a file, in hexadecimal."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
_NO_SPACE = 28  # ENOSPC


class TooLarge(InputError):
    """An upload is larger than is allowed."""


class BlobStore:
    """A directory of files; each lies under its digest from the moment it is complete, and is never changed."""

    def __init__(self, directory: Path) -> None:
        """Makes the directory, if it is not there.

        Raises:
            StorageError: it cannot be made.
        """
        self._directory = directory
        self._incoming = directory / "incoming"
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{directory}: cannot be made ({error.strerror})") from error

    def path(self, digest: Digest) -> Path:
        """Where the file with this digest lies, whether it is there or not.

        Raises:
            InputError: that is no digest.
        """
        if not _DIGEST.fullmatch(digest):
            raise InputError("that is no digest of a file")
        return self._directory / digest[:2] / digest

    def has(self, digest: Digest) -> bool:
        """Whether the file is there."""
        return self.path(digest).is_file()

    def existing(self, digest: Digest) -> Path:
        """Where the file with this digest lies.

        Raises:
            StorageError: it is gone.
        """
        if not self.has(digest):
            raise StorageError(f"file {digest[:12]} is gone from the store")
        return self.path(digest)

    def renew(self, digest: Digest) -> bool:
        """Makes a file as if it were new, so that it is not swept away before somebody refers to it.

        Returns whether it is there.
        """
        try:
            os.utime(self.path(digest))
        except FileNotFoundError:
            return False
        return True

    def open(self, digest: Digest) -> IO[bytes]:
        """Returns the open file, to be read.

        Raises:
            StorageError: it is gone.
        """
        try:
            return self.path(digest).open("rb")
        except OSError as error:
            raise StorageError(f"file {digest[:12]} is gone from the store") from error

    def put(self, source: Path) -> Digest:
        """Keeps a copy of a file; returns its digest.

        Raises:
            StorageError: the file cannot be read, or its copy not written.
            StorageFull: the disk is full.
        """
        with _reporting(), source.open("rb") as file:
            return self.put_open(file)

    def keep(self, source: Path) -> Digest:
        """Keeps a file that nobody changes any more, as `put` does; without a copy if it lies on the same disk.

        Raises:
            StorageError: the file cannot be read, or kept.
            StorageFull: the disk is full.
        """
        with _reporting():
            with source.open("rb") as file:
                digest = sha256_of(file).hex()
                os.fsync(file.fileno())
            incoming, place = self._incoming / secrets.token_hex(8), self.path(digest)
            try:
                os.link(source, incoming)
            except OSError:  # on another disk, or one that has no links
                return self.put(source)
            try:
                os.utime(incoming)  # it is new here, and not to be swept away before somebody refers to it
                place.parent.mkdir(exist_ok=True)
                os.replace(incoming, place)
            finally:
                incoming.unlink(missing_ok=True)  # it is still there if it was kept before
            _sync_directory(place.parent)
            return digest

    def put_open(self, file: IO[bytes]) -> Digest:
        """Keep a copy of what is left to read of a file; returns its digest."""
        with _reporting(), self._receiving() as incoming:
            return incoming.finish(iter(lambda: file.read(_CHUNK), b""))

    def put_bytes(self, data: bytes) -> Digest:
        """Keep some bytes; returns their digest."""
        with _reporting(), self._receiving() as incoming:
            return incoming.finish([data])

    async def receive(
        self,
        chunks: AsyncIterator[bytes],
        most: int,
        examine: Callable[[Path, Digest, int], Awaitable[None]] | None = None,
    ) -> tuple[Digest, int]:
        """Keeps chunks as they come; returns their digest and their size in bytes.

        `examine` is given the complete file, its digest and its size before it is kept; where it raises an error,
        nothing is.

        Raises:
            TooLarge: there are more than `most` bytes; nothing of them is kept.
            StorageError: they cannot be written.
        """
        size = 0
        with _reporting(), self._receiving() as incoming:
            async for chunk in chunks:
                size += len(chunk)
                if size > most:
                    raise TooLarge(f"the upload is larger than the {most >> 20} MB that are allowed")
                incoming.write(chunk)
            if examine is not None:
                incoming.flush()
                await examine(incoming.path, incoming.digest, size)
            return await asyncio.to_thread(incoming.finish, []), size  # the disk may take long over it

    def remove(self, digest: Digest) -> None:
        """Remove the file, if it is there."""
        self.path(digest).unlink(missing_ok=True)

    @contextlib.contextmanager
    def unswept(self) -> Iterator[None]:
        """A block in which no file is swept away; waits for a sweep that is under way."""
        with self._lock(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def sweeping(self) -> Iterator[bool]:
        """A block in which files may be swept away; yields whether that is allowed now."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True

    def digests(self) -> Iterator[Digest]:
        """Yields the digests of all files."""
        for place in self._directory.glob("[0-9a-f][0-9a-f]/*"):
            if _DIGEST.fullmatch(place.name):
                yield place.name

    def sweep_incoming(self, before: float) -> None:
        """Removes unfinished files that have not changed since `before` (seconds since 1970)."""
        for left in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if left.stat().st_mtime < before:
                    left.unlink()

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _receiving(self) -> Iterator[_Incoming]:
        handle, name = tempfile.mkstemp(dir=self._incoming)
        try:
            with os.fdopen(handle, "wb") as file:
                yield _Incoming(self, file, Path(name))
        finally:
            Path(name).unlink(missing_ok=True)


class _Incoming:
    """A file on its way into the store."""

    def __init__(self, content: BlobStore, file: IO[bytes], path: Path) -> None:
        self._content = content
        self._file = file
        self.path = path
        self._hash = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._file.write(chunk)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> Digest:
        return self._hash.hexdigest()

    def finish(self, rest: Iterable[bytes]) -> Digest:
        """Writes the rest, and moves the complete file to its place."""
        for chunk in rest:
            self.write(chunk)
        self._file.flush()
        os.fsync(self._file.fileno())
        digest = self.digest
        place = self._content.path(digest)
        place.parent.mkdir(exist_ok=True)
        os.replace(self.path, place)
        _sync_directory(place.parent)
        return digest


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
    """Turns an error of the disk into a StorageError."""
    try:
        yield
    except OSError as error:
        if error.errno == _NO_SPACE:
            raise StorageFull("the service's disk is full; nothing was kept") from error
        raise StorageError(f"the service cannot use its disk: {error.strerror or error}") from error
