"""What an .npz file holds, by the headers of its arrays; their elements are not read."""

from __future__ import annotations

import zipfile
from pathlib import Path

from numpy.lib import format as npy

from kintune.errors import InputError
from kintune.service.model_store import Input

__all__ = ["read_headers"]

_MOST_ARRAYS = 256
_MOST_DIMENSIONS = 32


def read_headers(path: Path, most_bytes: int) -> tuple[Input, ...]:
    """Return the names, shapes and types of the arrays in an .npz file.

    Raises:
        InputError: it is no .npz file of plain arrays, or has more than `most_bytes` once it is unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if not members or len(members) > _MOST_ARRAYS:
                raise InputError(f"an .npz file of inputs has 1 to {_MOST_ARRAYS} arrays; this one has {len(members)}")
            if sum(member.file_size for member in members) > most_bytes:
                raise InputError(f"its arrays take more than the {most_bytes >> 20} MB that you may upload")
            return tuple(_header(archive, member) for member in members)
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise InputError("it is not an .npz file of plain arrays; save inputs by name with numpy.savez") from error


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Input:
    """One array.

    Raises:
        ValueError: it is none, or holds objects.
    """
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject or len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"{name} holds objects, or has too many dimensions")
    return Input(name[:256], tuple(shape), str(dtype))
