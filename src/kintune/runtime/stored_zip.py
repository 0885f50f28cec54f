"""The container of a `.kt` file: a zip whose members are stored without compression, each at a multiple of `PAGE`.

It is written whole or not at all, and the same content gives the same bytes.  `manifest.json` is its first member.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from kintune.errors import InputError, StorageError, StorageFull
from kintune.files import NoRegularFile, followed, open_regular

__all__ = [
    "MANIFEST",
    "PAGE",
    "Content",
    "check_members",
    "copy_file",
    "damaged",
    "folder_beside",
    "opened",
    "read_member",
    "reading",
    "replacing",
    "write_members",
]

PAGE = 4096
"""Bytes; the granularity at which files are mapped."""

MANIFEST = "manifest.json"
"""The name of the first member."""

Content = bytes | memoryview
"""What a member holds."""

_CHUNK = 16 << 20  # bytes handled at a time
_PADDING_ID = 0x4B54  # the extra field that pads a zip header, "KT"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ZIP64_EXTRA = 20  # bytes that `force_zip64` adds to a local header


def write_members(file: IO[bytes], members: Iterable[tuple[str, Content]]) -> None:
    """Write an archive of these members to an empty file, in their order."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)  # without the time of day: the same content gives the same bytes
            info.external_attr = 0o644 << 16
            info.extra = _padding(file.tell() + _LOCAL_HEADER.size + len(name) + _ZIP64_EXTRA)
            view = memoryview(content).cast("B")
            with archive.open(info, "w", force_zip64=True) as member:
                for start in range(0, len(view), _CHUNK):
                    member.write(view[start : start + _CHUNK])


def opened(path: Path, place: str = "") -> IO[bytes]:
    """The file at `place`, by default at `path`, opened for reading; `path` is for messages.

    Raises:
        InputError: it is missing, no file, or cannot be read.
    """
    try:
        return open_regular(place or path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except NoRegularFile as error:
        raise InputError(f"{path}: {error.strerror}, not a Kintune executable") from None
    except OSError as error:
        raise _unread(path, error) from error


@contextmanager
def reading(path: Path, place: str = "") -> Iterator[zipfile.ZipFile]:
    """The archive, opened as `opened` does; whatever is wrong with it becomes an InputError of one line."""
    try:
        with opened(path, place) as file:
            start = file.read(_LOCAL_HEADER.size + len(MANIFEST))
            if not start.startswith(b"PK\x03\x04") or not start.endswith(MANIFEST.encode()):
                raise InputError(f"{path}: not a Kintune executable; `kintune tune MODEL --output FILE.kt` writes one")
            with zipfile.ZipFile(file) as archive:
                check_members(archive, path, os.fstat(file.fileno()).st_size)
                yield archive
    except OSError as error:
        raise _unread(path, error) from error
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise damaged(path, str(error).strip("'\"") or type(error).__name__) from error


def check_members(archive: zipfile.ZipFile, path: Path, size: int) -> None:
    """Check that members are stored plainly, in a file of `size` bytes, and that each name leads to one alone.

    Raises:
        InputError: they are not.
    """
    names: set[str] = set()
    for info in archive.infolist():
        if info.filename in names:
            raise damaged(path, f"two members are {info.filename[:80]}")
        names.add(info.filename)
        if info.compress_type != zipfile.ZIP_STORED or not info.file_size == info.compress_size <= size:
            raise damaged(path, f"{info.filename[:80]} is not stored plainly")


def _unread(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror or error}")


def damaged(path: Path, what: str) -> InputError:
    """The error for a file of which something is missing or wrong."""
    return InputError(f"{path}: truncated or damaged ({what}); copy it again, or build it again")


def read_member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[np.uint8]:
    """A copy of a member's bytes, which begins at a page; its checksum is verified.

    Nobody can change it, or cut it off, once it was verified.
    """
    nbytes = archive.getinfo(name).file_size
    content = np.frombuffer(mmap.mmap(-1, nbytes + 1), np.uint8)[:nbytes]
    at = 0
    with archive.open(name) as file:
        while part := file.read(_CHUNK):
            content[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
    if at != nbytes:
        raise damaged(path, f"{name} is cut off")
    return content


def _padding(position: int) -> bytes:
    """Returns a zip extra field that moves the data after a header at `position` to the next page."""
    field = struct.Struct("<HH")
    filler = -(position + field.size) % PAGE
    return field.pack(_PADDING_ID, filler) + bytes(filler)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside `path` that takes its place at the end, or is removed on failure.

    Raises:
        InputError: there is something at `path` that is no file.
        StorageError: it cannot be written there; nothing is left behind then.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: cannot be written: not a regular file")
    path = followed(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):  # of a place that cannot be used, the first error says why
            temporary.unlink(missing_ok=True)


@contextmanager
def folder_beside(path: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder beside `path`, for what is needed to write that.

    Raises:
        StorageError: it cannot be made there.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent)
    except OSError as error:
        raise _unwritten(path, error) from error
    with folder as name:
        yield Path(name)


def _unwritten(path: Path, error: OSError) -> StorageError:
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(f"{path}: cannot be written: {error.strerror or error}")


def copy_file(source: IO[bytes], path: str | os.PathLike[str]) -> None:
    """Write what an opened file holds to another path, whole or not at all.

    Raises:
        InputError: there is something that is no file.
        StorageError: it cannot be written there; nothing is left behind then.
    """
    source.seek(0)
    with replacing(Path(path)) as file:
        shutil.copyfileobj(source, file, _CHUNK)
