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
    "copy_file",
    "damaged",
    "folder_beside",
    "map_member",
    "opened",
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
                yield archive
    except OSError as error:
        raise _unread(path, error) from error
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise damaged(path, str(error).strip("'\"") or type(error).__name__) from error


def _unread(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror or error}")


def damaged(path: Path, what: str) -> InputError:
    """The error for a file of which something is missing or wrong."""
    return InputError(f"{path}: truncated or damaged ({what}); copy it again, or build it again")


def map_member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[np.uint8]:
    """A member's bytes as a private, copy-on-write view of the file; its checksum is verified."""
    info, file = archive.getinfo(name), archive.fp
    if file is None or info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise damaged(path, f"{name} is not stored plainly")
    if info.file_size == 0:
        return np.empty(0, np.uint8)
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) != _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise damaged(path, f"{name} has no header")
    name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
    start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    data = data[start : start + info.file_size]
    checksum = 0
    for at in range(0, len(data), _CHUNK):
        checksum = zlib.crc32(data[at : at + _CHUNK].data, checksum)
    if len(data) != info.file_size or checksum != info.CRC:
        raise damaged(path, f"bad checksum of {name}")
    return data


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
