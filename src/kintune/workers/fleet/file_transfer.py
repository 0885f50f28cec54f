"""Where a process elsewhere finds and leaves its files, and how those that it leaves reach the front."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from kintune.errors import InputError, WireError
from kintune.wire.staging import READY, HandedOver, staged_name
from kintune.workers.fleet.content_cache import cache_directory
from kintune.workers.fleet.messages import Collect, Made
from kintune.workers.fleet.ownership import is_abandoned, owner

__all__ = ["PART_BYTES", "Collector", "StagingDirectory", "sees", "sweep", "with_token"]


PART_BYTES = 1 << 20
"""Bytes of a file that go over the connection at once."""

_PREFIX = "kintune-staging-"
_TOKEN = ".kintune-visible"


class StagingDirectory:
    """A directory for the files of one process: those that it needs, and below `made` those that it makes."""

    def __init__(self, cache: Path) -> None:
        """Make it in the directory of the cache, where files of the cache can be linked: temporary files may lie in
        memory.  Where nothing can be written there, it is one of the temporary files.

        Raises:
            OSError: it cannot be made.
        """
        prefix = f"{_PREFIX}{owner()}-"
        try:
            cache.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=cache.absolute()))
        except OSError:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.made = self.path / "made"
        self.made.mkdir()

    def refer(self, path: str) -> None:
        """The process finds the file where the front has it.

        Raises:
            InputError: the directory is gone or full.
        """
        try:
            place = self.path / staged_name(path)
            place.unlink(missing_ok=True)
            place.symlink_to(path)
        except OSError as error:
            raise InputError(f"{path[-80:]!r} cannot be kept: {error.strerror}") from error

    def add(self, path: str, copy: Path) -> bool:
        """The process finds this copy of the file; false if there is no such copy any more.

        Raises:
            InputError: the directory is gone or full.
        """
        place = self.path / staged_name(path)
        try:
            place.unlink(missing_ok=True)
            try:
                os.link(copy, place)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                    raise
                shutil.copyfile(copy, place)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.path.exists():
                return False
            raise InputError(f"{path[-80:]!r} cannot be kept: {error.strerror}") from error
        return True

    def empty(self) -> None:
        """Forget all files that were brought.

        Raises:
            OSError: the directory is gone, and another one cannot be made.
        """
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(mode=0o700)  # what was not used for days is removed from directories for temporary files
        if self.path.lstat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        self.made.mkdir(exist_ok=True)
        for file in self.path.iterdir():
            if file != self.made:
                file.unlink(missing_ok=True)

    def parts_made(self, process: int) -> Iterator[Made]:
        """The parts of the files that the process has handed over by now.

        These are taken out at once: process and directory may be gone before the parts are read.
        """
        return chain.from_iterable([self._take(process, ready) for ready in sorted(self.made.glob(f"*{READY}"))])

    def _take(self, process: int, ready: Path) -> Iterator[Made]:
        """The parts of one file; one that is gone has none, which the front notices."""
        try:
            handed_over = msgspec.json.decode(ready.read_bytes(), type=HandedOver)
            ready.unlink()
            path = self.made / handed_over.name
            file = path.open("rb")
        except (OSError, ValueError, msgspec.MsgspecError):
            return iter(())
        path.unlink(missing_ok=True)
        parts = _parts_made(process, file, handed_over)
        weakref.finalize(parts, file.close)  # nobody may read them
        return parts

    def remove(self) -> None:
        """Remove it with its files."""
        shutil.rmtree(self.path, ignore_errors=True)


def _parts_made(process: int, file: IO[bytes], handed_over: HandedOver) -> Iterator[Made]:
    offset, size = 0, handed_over.size
    with contextlib.suppress(OSError), file:
        while (data := file.read(PART_BYTES)) or offset == 0:
            yield Made(process, handed_over.path, offset, size, handed_over.digest, data)
            offset += len(data)
            if not data or offset >= size:
                break


class Collector:
    """The front's end: writes what processes elsewhere have made, and nothing but what they may make."""

    def __init__(self) -> None:
        self._prefixes: dict[int, str] = {}
        self._arriving: dict[tuple[int, str], tuple[int, hashlib._Hash]] = {}

    def expect(self, process: int, prefix: str) -> None:
        """The process may make files whose paths begin so, in that directory."""
        self._prefixes[process] = prefix

    def close(self) -> None:
        """All processes are gone."""
        for process in list(self._prefixes):
            self.forget(process)

    def forget(self, process: int) -> None:
        """The process is gone; what has half arrived is removed."""
        self._prefixes.pop(process, None)
        for key in [key for key in self._arriving if key[0] == process]:
            del self._arriving[key]
            Path(_arriving(*key)).unlink(missing_ok=True)

    def take(self, made: Made) -> None:
        """Write a part; the file gets its name with the last one.  That of a process which is gone is left aside.

        Raises:
            InputError: it cannot be kept, or is not what was announced.
            WireError: the process may not make this file.
        """
        prefix = self._prefixes.get(made.process)
        if prefix is None:
            return
        beside = os.path.dirname(made.path) == os.path.dirname(prefix)
        if not (made.path.startswith(prefix) and beside) or "\0" in made.path:
            raise WireError(f"it made a file that nobody wants: {made.path[-80:]!r}")
        key, name = (made.process, made.path), os.path.basename(made.path)
        if made.offset == 0:
            self._arriving[key] = (0, hashlib.sha256())
        written, digest = self._arriving.get(key, (-1, hashlib.sha256()))
        if made.offset != written:
            raise InputError(f"{name}: a part of it is missing")
        temporary = _arriving(*key)
        try:
            with open(temporary, "wb" if made.offset == 0 else "ab") as file:
                file.write(made.data)
                if written + len(made.data) >= made.size:
                    file.flush()
                    os.fsync(file.fileno())  # what is committed after this must be there
            digest.update(made.data)
            written += len(made.data)
            self._arriving[key] = (written, digest)
            if written < made.size:
                return
            del self._arriving[key]
            if written != made.size or digest.hexdigest() != made.digest:
                Path(temporary).unlink(missing_ok=True)
                raise InputError(f"{name} arrived otherwise than it was made; its SHA-256 differs")
            os.replace(temporary, made.path)
        except OSError as error:
            Path(temporary).unlink(missing_ok=True)
            raise InputError(f"{name} cannot be kept: {error.strerror}") from error


def with_token(prefix: str) -> Collect:
    """Returns what the agent of a process that makes files is told: their prefix, and a token file beside them.

    Where the token file cannot be written, it is left out, and the agent takes the directory for one that is not
    shared.
    """
    path = os.path.join(os.path.dirname(prefix), _TOKEN)
    try:
        if not os.path.exists(path):
            with open(f"{path}-{os.getpid()}", "w") as file:
                file.write(secrets.token_hex(16))
            os.replace(file.name, path)
        with open(path) as file:
            return Collect(prefix, path, file.read(64))
    except OSError:
        return Collect(prefix)


def sees(collect: Collect) -> bool:
    """Whether this machine sees the directory in which the front wants the files."""
    try:
        with open(collect.token_path) as file:
            return bool(collect.token) and file.read(64) == collect.token
    except (OSError, ValueError):
        return False


def _arriving(process: int, path: str) -> str:
    return f"{path}.arriving-{process}"


def sweep() -> None:
    """Remove the directories of agents that were killed."""
    folders = (cache_directory(), Path(tempfile.gettempdir()))
    for path in chain.from_iterable(folder.glob(f"{_PREFIX}*-*") for folder in folders):
        with contextlib.suppress(OSError):
            if is_abandoned(path, _PREFIX):
                shutil.rmtree(path, ignore_errors=True)
