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
from kintune.graph.inputs import load_inputs

__all__ = ["read_arrays", "write_arrays"]


def read_arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an `.npz` file by name.  Raises InputError when it is none; Python objects in it are refused."""
    check_readable(path, "--input")
    try:
        return load_inputs(path)
    except InputError as error:
        raise InputError(f"--input {error}; write it with np.savez(path, NAME=array)") from error


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as an `.npz` file, all at once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_whole(path, buffer.getvalue())
