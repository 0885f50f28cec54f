"""Files kept by what is in them: a directory of a machine in which what was brought once is found again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import platformdirs

from kintune.errors import InputError
from kintune.files import sha256_of
from kintune.workers.fleet.ownership import is_abandoned, owner

__all__ = [
    "CACHE_VARIABLE",
    "MOST_BYTES",
    "Arrival",
    "ContentCache",
    "ContentMismatch",
    "FileContent",
    "FileDigests",
    "cache_directory",
]

CACHE_VARIABLE = "KINTUNE_FILE_CACHE"
"""The environment variable that names the directory of the cache, in place of one in the user's cache directory."""

MOST_BYTES = 16 << 30
"""What a cache holds at most, in bytes; the file that was used longest ago goes first."""

_SPARE = 64 << 20  # bytes that are left free on the disk
_ARRIVING = ".arriving-"
_MOST_KNOWN = 4096


class ContentMismatch(Exception):
    """What arrived is not what was announced."""


class FileContent(NamedTuple):
    """What is in a file: its size in bytes, and its SHA-256 digest in hexadecimal digits."""

    size: int
    digest: str


class FileDigests:
    """Digests of files, computed again only when a file's size, time of change or inode differ.

    May be used by several threads.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], FileContent]] = {}
        self._lock = threading.Lock()

    def known(self, path: str | Path) -> FileContent | None:
        """What is in the file, if that can be told without reading it.

        Raises:
            OSError: there is no such file.
        """
        found = self._known.get(str(path))
        return found[1] if found is not None and found[0] == _state(os.stat(path)) else None

    def of(self, path: str | Path) -> FileContent:
        """What is in the file; it is read if it has changed.

        Raises:
            OSError: it cannot be read, or is no regular file.
        """
        if (known := self.known(path)) is not None:
            return known
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise OSError(f"{path} is no regular file")
            digest = sha256_of(file).hex()
        content = FileContent(before.st_size, digest)
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[str(path)] = (_state(before), content)
        return content

    def forget(self, path: str | Path) -> None:
        """Read the file the next time, even if it looks the same."""
        with self._lock:
            self._known.pop(str(path), None)


class ContentCache:
    """Files by their digests, in a directory that several processes may share.

    What is found has been compared with its digest, once for each process.
    """

    def __init__(self, directory: Path | None = None, most_bytes: int = MOST_BYTES) -> None:
        """Nothing is written yet; without a `directory` it is that of this user."""
        self.directory = directory if directory is not None else cache_directory()
        self.digests = FileDigests()
        self._most_bytes = most_bytes

    def find(self, content: FileContent) -> Path | None:
        """The file of this content, or None; one that is damaged is removed."""
        path = self.directory / content.digest
        try:
            if self.digests.of(path) == content:
                _note_use(path)
                return path
            path.unlink(missing_ok=True)
        except OSError:
            pass
        return None

    def begin(self, name: str, content: FileContent) -> Arrival:
        """Take in a file of this content, called `name` in errors; what was used longest ago makes room for it.

        Raises:
            InputError: there is no room, or the directory cannot be written to.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._make_room(content.size)
            free = shutil.disk_usage(self.directory).free - _SPARE
            if content.size > free:
                raise InputError(
                    f"{name} is too large for this machine: it has {content.size / 1e6:.0f} MB, and "
                    f"{max(0, free) / 1e6:.0f} MB are free in {self.directory}"
                )
            return Arrival(self.directory, name, content)
        except (OSError, OverflowError) as error:
            raise InputError(f"{name} cannot be kept in {self.directory}: {error}") from error

    def _make_room(self, size: int) -> None:
        """Remove what was used longest ago until `size` more bytes fit, and what dead processes left."""
        kept: list[tuple[int, int, Path]] = []
        for path in self.directory.iterdir():
            try:
                if path.name.startswith(_ARRIVING):
                    if is_abandoned(path, _ARRIVING):
                        path.unlink(missing_ok=True)
                    continue
                about = path.stat()
            except FileNotFoundError:  # another process makes room, too
                continue
            if stat.S_ISREG(about.st_mode):
                kept.append((about.st_atime_ns, about.st_size, path))
        total = sum(each for _, each, _ in kept)
        for _, each, path in sorted(kept):
            if total + size <= self._most_bytes:
                return
            path.unlink(missing_ok=True)
            total -= each


class Arrival:
    """A file that is on its way into a cache."""

    def __init__(self, directory: Path, name: str, content: FileContent) -> None:
        """Begin with nothing.

        Raises:
            OSError: it cannot be written.
        """
        self._directory, self._name, self._content = directory, name, content
        handle, place = tempfile.mkstemp(prefix=f"{_ARRIVING}{owner()}-", dir=directory)
        self._file, self._path = os.fdopen(handle, "wb"), Path(place)
        self._hash = hashlib.sha256()
        self._written = 0

    def take(self, offset: int, data: bytes) -> bool:
        """Add a part; whether it was the last one.

        Raises:
            ContentMismatch: it does not follow the part before, or there is more than was announced.
            InputError: it cannot be written.
        """
        if offset != self._written or offset + len(data) > self._content.size:
            raise ContentMismatch
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise InputError(f"{self._name} cannot be kept in {self._directory}: {error.strerror}") from error
        self._hash.update(data)
        self._written += len(data)
        return self._written == self._content.size

    def finish(self) -> Path:
        """Where the file is from now on.

        Raises:
            ContentMismatch: its digest is not what was announced.
            InputError: it cannot be kept.
        """
        if self._hash.hexdigest() != self._content.digest:
            self.drop()
            raise ContentMismatch
        path = self._directory / self._content.digest
        try:
            self._file.close()
            self._path.chmod(0o444)
            self._path.replace(path)
        except OSError as error:
            raise InputError(f"{self._name} cannot be kept in {self._directory}: {error.strerror}") from error
        return path

    def drop(self) -> None:
        """Forget what has arrived."""
        with contextlib.suppress(OSError):  # a full disk does not take what is left to be written, either
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def cache_directory() -> Path:
    """The directory of this user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path(platformdirs.user_cache_dir("kintune")) / "files"


def _note_use(path: Path) -> None:
    """Set the time of last use, by which the cache makes room; another user's file keeps the one it has.

    Raises:
        FileNotFoundError: the file is gone.
    """
    times = time.time_ns(), path.stat().st_mtime_ns
    try:
        os.utime(path, ns=times)
    except FileNotFoundError:
        raise
    except OSError:
        pass


def _state(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_size, about.st_mtime_ns, about.st_ino
