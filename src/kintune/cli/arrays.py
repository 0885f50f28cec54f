"""Arrays in `.npz` files: what goes into a model and what comes out."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kintune.errors import InputError
from kintune.files import check_readable, write_whole

__all__ = ["read_arrays", "write_arrays"]


def read_arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an `.npz` file by name.  Raises InputError when it is none; Python objects in it are refused."""
    file = check_readable(path, "--input")
    try:
        with file.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"--input {path} holds one unnamed array; write it with np.savez(path, NAME=array)")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"--input {path} is not a readable .npz file ({error}); write it with np.savez") from error


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as an `.npz` file, all at once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_whole(path, buffer.getvalue())
