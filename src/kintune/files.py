"""Files that users name: checked before any work, hashed, written all at once or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO

from kintune.errors import InputError

__all__ = [
    "NoRegularFile",
    "check_readable",
    "check_writable",
    "expanded",
    "followed",
    "is_stream",
    "move_into_place",
    "open_regular",
    "readable_files",
    "sha256_of",
    "write_whole",
]

_BLOCK = 1 << 20  # bytes that are hashed at once
_LONGEST_NAME = 190  # bytes of 255: files that are written for a time, and the report, have longer names


def check_writable(path: str | os.PathLike[str], what: str, *, stream: bool = False) -> Path:
    """The absolute path of a file that can be created or replaced; `what` names it in errors.  Leaves nothing behind.

    A link is followed: what it leads to is replaced.  With `stream`, a device or a pipe will do as well, which
    `write_whole` writes to.

    Raises:
        InputError: the directory is missing or cannot be written to, or `path` is a directory itself, or, without
            `stream`, no regular file.
    """
    target = _absolute(path)
    mode = _mode(target, path, what)
    if mode is not None and stat.S_ISDIR(mode):
        raise InputError(f"{what} {path} is a directory; name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        if not stream:
            raise InputError(f"{what} {path} is a device or a pipe, which a file cannot replace; name a file")
        if not os.access(target, os.W_OK):
            raise InputError(f"{what} {path} cannot be written to")
        return target
    if stream and _standard_stream(target) is not None:
        return target
    target = followed(target)
    if not os.path.isdir(target.parent):
        raise InputError(f"{what} {path}: there is no directory {target.parent}; create it first")
    if (size := len(target.name.encode())) > _LONGEST_NAME:
        raise InputError(f"{what} {path}: its name has {size} bytes; choose one of at most {_LONGEST_NAME}")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{what} {path}: cannot write to {target.parent} ({reason}); name another place") from error
    return target


def check_readable(path: str | os.PathLike[str], what: str) -> Path:
    """The absolute path of an existing file that can be read; `what` names it in errors.

    Raises:
        InputError: it does not exist, is a directory, or cannot be read, or its path is not UTF-8.
    """
    target = _absolute(path)
    mode = _mode(target, path, what)
    if mode is None:
        raise InputError(f"{what} {path} does not exist; check the path")
    if stat.S_ISDIR(mode):
        raise InputError(f"{what} {path} is a directory; name a file in it")
    if not os.access(target, os.R_OK):
        raise InputError(f"{what} {path} cannot be read; check its permissions")
    return target


def readable_files(path: str | os.PathLike[str], suffix: str, what: str) -> tuple[Path, ...]:
    """The absolute path of a file, or those of the files with this suffix in a directory, in the order of their names.

    `what` names them in errors.

    Raises:
        InputError: there is none, or one cannot be read.
    """
    target = _absolute(path)
    if not os.path.isdir(target):
        return (check_readable(path, what),)
    try:
        names = sorted(name for name in os.listdir(target) if name.endswith(suffix))
    except OSError as error:
        raise InputError(f"{what} {path} cannot be listed: {error.strerror or error}") from error
    if not names:
        raise InputError(f"{what} {path}: there is no {suffix} file in this directory")
    return tuple(check_readable(target / name, what) for name in names)


class NoRegularFile(OSError):
    """What was to be opened is a directory, a pipe or a device."""


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with `~` or `~USER` at its beginning replaced by that home directory.

    A name that only begins with `~`, where there is no such user, stays as it is.
    """
    return Path(os.path.expanduser(path))


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading; a pipe is not waited for.

    Raises:
        NoRegularFile: it is none; `strerror` says what it is.
        OSError: it is missing or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise NoRegularFile(errno.EINVAL, kind, os.fspath(path))
    return os.fdopen(descriptor, "rb")


def sha256_of(file: IO[bytes]) -> bytes:
    """The SHA-256 digest of the rest of an open file, which is read in blocks."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.digest()


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between.

    A symbolic link stays, and its target is replaced.  Devices, pipes and the files of this process's standard output
    and standard error are not replaced but written to.

    Raises:
        InputError: the disk refuses; nothing half-written is left.
    """
    try:
        if (standard := _standard_stream(path)) is not None:
            _write_out(standard, data)
            return
        if is_stream(path):
            path.write_bytes(data)
            return
        path = followed(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def is_stream(path: Path) -> bool:
    """Whether it is a device or a pipe, which must not be replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def move_into_place(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a file to `target`, or to what that leads to if it is a link.

    Raises:
        OSError: the disk refuses, or `target` is a device or a pipe.
    """
    if is_stream(Path(target)):
        raise OSError(errno.EINVAL, "it is a device or a pipe, which a file cannot replace")
    os.replace(source, followed(Path(target)))


def followed(path: Path) -> Path:
    """Return the target of a symbolic link, whether it exists or not; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _standard_stream(path: Path) -> int | None:
    """Return the descriptor, 1 or 2, of the standard stream that goes to the file at `path`; None if neither does."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except OSError:  # there is no such file, or the stream is closed
            continue
    return None


def _write_out(descriptor: int, data: bytes) -> None:
    """Write to a standard stream, after what was printed before."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _absolute(path: str | os.PathLike[str]) -> Path:
    target = os.path.abspath(expanded(path))
    try:
        target.encode()
    except UnicodeEncodeError as error:  # it cannot be written to documents and records
        raise InputError(f"{os.fsencode(target)!r} is not UTF-8; name another place, or rename it") from error
    return Path(target)


def _mode(target: Path, path: str | os.PathLike[str], what: str) -> int | None:
    """The mode of what is at a path, links followed; None where there is nothing.

    Raises:
        InputError: it cannot be told: the name is too long, or a directory on the way may not be entered.
    """
    try:
        return target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no name holds a NUL character
        return None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be used: {error.strerror or error}; check the path") from error


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
