"""Inputs for a model when nobody gives any, and inputs read from a file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from kintune.errors import InputError
from kintune.job.payloads import Tensor

__all__ = ["draw_inputs", "load_inputs", "numpy_dtype"]


def draw_inputs(tensors: Iterable[Tensor], seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Arrays of the given names, shapes and dtypes, the same for the same seed.

    Floating-point values are normal (mean 0, deviation 1); integers are 0 or 1, which any vocabulary has and any mask
    understands.
    """
    generator = np.random.default_rng(seed)
    drawn: dict[str, npt.NDArray[np.generic]] = {}
    for tensor in tensors:
        values: npt.NDArray[np.generic]
        if tensor.dtype.startswith(("float", "bfloat")):
            values = generator.standard_normal(tensor.shape, np.float32)
        else:
            values = generator.integers(0, 2, tensor.shape)
        drawn[tensor.name] = values.astype(numpy_dtype(tensor.dtype))
    return drawn


def load_inputs(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of an `.npz` file by name.

    Raises InputError when it is missing or is no `.npz` file of plain arrays.
    """
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InputError(f"{path}: a single array without a name; save inputs by name with numpy.savez")
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not an .npz file of plain arrays: {error}") from error


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name that the compiler uses; `bfloat16` and the 8-bit floats come from `ml_dtypes`."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
