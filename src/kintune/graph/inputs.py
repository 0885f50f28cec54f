"""A model's inputs as arrays: drawn when nobody gives any, read from a file, checked and put in order."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kintune.errors import InputError
from kintune.job.payloads import Tensor

__all__ = ["Array", "arrange_inputs", "draw_inputs", "load_inputs", "numpy_dtype"]

Array: TypeAlias = npt.NDArray[Any]


def arrange_inputs(tensors: Sequence[Tensor], given: Sequence[Any]) -> list[Array]:
    """The arrays of a model's inputs in its order.

    `given` is one mapping of names to arrays, or one array an input.  Raises InputError when an input is missing,
    unknown, or of another dtype or shape than the model's.
    """
    expected = [tensor.name for tensor in tensors]
    if len(given) == 1 and isinstance(given[0], Mapping):
        named = given[0]
        unknown = [str(name) for name in named if name not in expected]
        missing = [name for name in expected if name not in named]
        if unknown:
            raise InputError(f"no input is called {_listed(unknown)}; the inputs are {_listed(expected)}")
        if missing:
            raise InputError(f"input {_listed(missing)} is missing; the inputs are {_listed(expected)}")
        given = [named[name] for name in expected]
    elif len(given) != len(expected):
        raise InputError(f"{len(given)} inputs given, {len(expected)} needed: {_listed(expected)}")
    return [_checked(tensor, value) for tensor, value in zip(tensors, given, strict=True)]


def draw_inputs(tensors: Iterable[Tensor], seed: int = 0) -> dict[str, Array]:
    """Arrays of the given names, shapes and dtypes, the same for the same seed.

    Floating-point values are normal (mean 0, deviation 1); integers are 0 or 1, which any vocabulary has and any mask
    understands.
    """
    generator = np.random.default_rng(seed)
    drawn: dict[str, Array] = {}
    for tensor in tensors:
        values: Array
        if tensor.dtype.startswith(("float", "bfloat")):
            values = np.asarray(generator.standard_normal(tensor.shape, np.float32))
        else:
            values = np.asarray(generator.integers(0, 2, tensor.shape))
        drawn[tensor.name] = values.astype(numpy_dtype(tensor.dtype))
    return drawn


def load_inputs(path: str | os.PathLike[str]) -> dict[str, Array]:
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


def _checked(tensor: Tensor, value: Any) -> Array:
    array = np.asarray(value)
    dtype = numpy_dtype(tensor.dtype)
    if array.dtype != dtype:
        raise InputError(f"input {tensor.name!r} is {array.dtype}, {dtype} is needed; use .astype({dtype.name!r})")
    if array.shape != tensor.shape:
        raise InputError(f"input {tensor.name!r} has shape {array.shape}, {tensor.shape} is needed")
    return array


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
