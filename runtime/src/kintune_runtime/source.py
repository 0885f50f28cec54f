"""What a model is opened from: the path of a file, or contents, which are kept where nobody can change them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeAlias

from .errors import InputError, RunError
from .library import library
from .signature import Key, public_key, verify

__all__ = ["IN_MEMORY", "Located", "Source", "file_in_memory", "located"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes]"
"""A path, the contents of a file, or a file object, which is read to its end."""

IN_MEMORY = "(memory)"
"""The name of contents in messages."""

_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
_ADD_SEALS = 1033  # F_ADD_SEALS
_CHUNK = 1 << 30  # bytes


class Located(NamedTuple):
    """Where contents can be opened, and their name in messages."""

    place: str
    name: str


@contextmanager
def located(source: Source, private: bool = False, trusted: Key | None = None) -> Iterator[Located]:
    """Where a source can be opened during the block: a path as it is, all else, and with `private`, in memory.

    With `trusted`, a public key, it is copied into memory as well, and what was copied must be signed with that key.

    Raises:
        InputError: it is none of these, or cannot be read; it is not signed, or altered, or the key cannot be used.
        RunError: no memory is left.
    """
    if trusted is not None:
        public_key(trusted)
    if isinstance(source, (str, os.PathLike)) and not private and trusted is None:
        name = os.fspath(source)
        yield Located(name, name)
        return
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else str(getattr(source, "name", IN_MEMORY))
    try:
        descriptor = file_in_memory(lambda file: _copy(source, name, file))
    except (MemoryError, OSError) as error:
        if isinstance(error, MemoryError) or error.errno in (errno.ENOMEM, errno.ENOSPC):
            raise RunError(f"{name}: no memory for a copy") from error
        raise InputError(f"{name}: {error.strerror or error}") from error
    try:
        if trusted is not None:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                verify(file, trusted, name)
        yield Located(f"/proc/self/fd/{descriptor}", name)
    finally:
        os.close(descriptor)


def file_in_memory(write: Callable[[IO[bytes]], None]) -> int:
    """Returns the descriptor of a file without a name, in memory, which has what `write` writes and never changes."""
    descriptor: int = library().kt_memory_file()  # builds of Python for an old glibc lack os.memfd_create
    if descriptor < 0:
        raise OSError(-descriptor, os.strerror(-descriptor))
    try:
        with os.fdopen(descriptor, "w+b", closefd=False) as file:
            write(file)
        fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _copy(source: Any, name: str, file: IO[bytes]) -> None:
    if isinstance(source, (str, os.PathLike)):
        _copy_file(name, file.fileno())
        return
    if (read := getattr(source, "read", None)) is not None:
        source = read()
        if isinstance(source, str):
            raise InputError(f"{name}: was opened as text; open it as binary, with mode 'rb'")
    try:
        file.write(memoryview(source).cast("B"))
    except TypeError:
        kind = type(source).__name__
        raise InputError(f"a model is opened from a path, bytes or a file object, not from {kind}") from None


def _copy_file(path: str, descriptor: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise InputError(f"{path}: not a regular file")
        while os.sendfile(descriptor, source, None, _CHUNK):
            continue
    finally:
        os.close(source)
