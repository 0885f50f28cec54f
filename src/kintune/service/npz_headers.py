"""What an .npz file holds, by the headers of its arrays; their elements are not read."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, cast

from numpy.lib import format as npy

from kintune.errors import InputError
from kintune.service.model_store import Input

__all__ = ["read_headers"]

_MOST_ARRAYS = 256
_MOST_DIMENSIONS = 32
_MOST_READ = 1 << 20  # bytes at once: `zipfile` reads the whole directory of a file, however long that is
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of numpy; others unpack without a limit
_LONGEST_HEADER = 1 << 16
_LARGEST = 1 << 63


def read_headers(path: Path, most_bytes: int) -> tuple[Input, ...]:
    """Return the names, shapes and types of the arrays in an .npz file.

    Raises:
        InputError: it is no .npz file of plain arrays, or has more than `most_bytes` once it is unpacked.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(cast("IO[bytes]", _Bounded(file))) as archive:
            members = archive.infolist()
            if not members or len(members) > _MOST_ARRAYS:
                raise InputError(f"an .npz file of inputs has 1 to {_MOST_ARRAYS} arrays; this one has {len(members)}")
            if sum(member.file_size for member in members) > most_bytes:
                raise InputError(f"its arrays take more than the {most_bytes >> 20} MB that you may upload")
            return tuple(_header(archive, member) for member in members)
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError("it is not an .npz file of plain arrays; save inputs by name with numpy.savez") from error


class _Bounded:
    """A file that limits how much is read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Reads this many bytes, or the rest.

        Raises:
            zipfile.BadZipFile: these are too many.
        """
        data = self._file.read(_MOST_READ + 1 if size < 0 else min(size, _MOST_READ + 1))
        if len(data) > _MOST_READ:
            raise zipfile.BadZipFile("its directory, or the header of an array, is too long")
        return data


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Input:
    """Reads the header of one array.

    Raises:
        ValueError: it is none, holds objects, or its header is too long.
    """
    name = member.filename.removesuffix(".npy")
    if ".." in name.split("/") or "\\" in name or not name.isprintable():
        raise ValueError(f"{name!r} is the name of no array")
    if member.compress_type not in _COMPRESSIONS:
        raise ValueError(f"{name} is compressed in a way that numpy does not use")
    with archive.open(member) as file:
        beginning = io.BytesIO(file.read(_LONGEST_HEADER))  # numpy reads as much as the file says, so it gets no more
    try:
        version = npy.read_magic(beginning)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(beginning)
        held = member.file_size - beginning.tell()
    except Exception as error:  # numpy lets through what Python's parser raises
        raise ValueError(f"{name} has no header of an array") from error
    if dtype.hasobject or len(shape) > _MOST_DIMENSIONS or not all(0 <= extent < _LARGEST for extent in shape):
        raise ValueError(f"{name} holds objects, or its shape is not possible")
    if math.prod(shape) * dtype.itemsize != held:
        raise ValueError(f"{name} holds {held} bytes, which its shape and type do not have")
    return Input(name[:256], tuple(map(int, shape)), str(dtype))
