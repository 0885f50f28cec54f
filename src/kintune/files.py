"""Files that users name: checked before any work, hashed, written all at once or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO

from kintune.errors import InputError

__all__ = ["check_readable", "check_writable", "readable_files", "sha256_of", "write_whole"]

_BLOCK = 1 << 20  # bytes that are hashed at once


def check_writable(path: str | os.PathLike[str], what: str) -> Path:
    """The absolute path of a file that can be created or replaced; `what` names it in errors.  Leaves nothing behind.

    Raises:
        InputError: the directory is missing or cannot be written to, or `path` is a directory itself.
    """
    target = _absolute(path)
    if target.is_dir():
        raise InputError(f"{what} {path} is a directory; name a file in it")
    if target.exists() and not target.is_file():  # a device or a pipe
        if not os.access(target, os.W_OK):
            raise InputError(f"{what} {path} cannot be written to")
        return target
    if not target.parent.is_dir():
        raise InputError(f"{what} {path}: there is no directory {target.parent}; create it first")
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
        InputError: there is none.
    """
    target = _absolute(path)
    if target.is_dir():
        raise InputError(f"{what} {path} is a directory; name a file in it")
    if not target.exists():
        raise InputError(f"{what} {path} does not exist; check the path")
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
    if not target.is_dir():
        return (check_readable(path, what),)
    try:
        names = sorted(name for name in os.listdir(target) if name.endswith(suffix))
    except OSError as error:
        raise InputError(f"{what} {path} cannot be listed: {error.strerror or error}") from error
    if not names:
        raise InputError(f"{what} {path}: there is no {suffix} file in this directory")
    return tuple(check_readable(target / name, what) for name in names)


def sha256_of(file: IO[bytes]) -> bytes:
    """The SHA-256 digest of the rest of an open file, which is read in blocks."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.digest()


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between.

    Raises:
        InputError: the disk refuses; nothing half-written is left.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
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


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
