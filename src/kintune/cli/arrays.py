"""Arrays in `.npz` files: what goes into a model."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from kintune.errors import InputError
from kintune.files import check_readable
from kintune.runtime.inputs import load_inputs

__all__ = ["read_arrays"]


def read_arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an `.npz` file by name.  Raises InputError when it is none; Python objects in it are refused."""
    check_readable(path, "--input")
    try:
        return load_inputs(path)
    except InputError as error:
        raise InputError(f"--input {error}; write it with np.savez(path, NAME=array)") from error
