"""A model's inputs as arrays: draws them from a seed, reads and writes files, checks and orders them."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kintune.core.dtypes import numpy_dtype
from kintune.core.model import IndexCheck, Tensor
from kintune.errors import InputError
from kintune.files import write_whole

__all__ = ["Array", "arrange_inputs", "check_indices", "draw_inputs", "load_arranged", "load_inputs", "write_arrays"]


Array: TypeAlias = npt.NDArray[Any]

_COUNTS = 8  # an upper bound of the values of counts


def arrange_inputs(tensors: Sequence[Tensor], given: Sequence[Any]) -> list[Array]:
    """The arrays of a model's inputs in its order.

    `given` is one mapping of names to arrays, or one array an input.

    Raises:
        InputError: an input is missing, unknown, of another dtype or shape than the model's, or holds an index outside
            of its `bounds`.
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

    They follow a tensor's `bounds` and `values`: indices lie in their tables, bytes over their range, counts in
    [0, 8), images in [0, 1), masks are ones with a tail of zeros in each row, lengths are those of the whole.  Other
    floating-point values are normal (mean 0, deviation 1), other integers 0 or 1, which any table has.
    """
    tensors = tuple(tensors)
    generator = np.random.default_rng(seed)
    longest = min((tensor.shape[1] for tensor in tensors if len(tensor.shape) in (2, 3)), default=1)
    return {t.name: np.asarray(_drawn(t, generator, longest)).astype(numpy_dtype(t.dtype)) for t in tensors}


def _drawn(tensor: Tensor, generator: np.random.Generator, longest: int) -> Any:
    """Returns the values of one input, in any type."""
    shape = tensor.shape
    if tensor.bounds is not None:
        least, greatest = tensor.bounds
        least = max(least, min(0, greatest))
        if tensor.values == "ids":
            greatest = max(least, min(greatest, tensor.below - 1))
        return generator.integers(least, greatest, shape, endpoint=True)
    match tensor.values:
        case "mask":
            return _mask(shape, generator)
        case "image":
            return generator.random(shape, np.float32)
        case "ids":
            return generator.integers(0, max(1, min(tensor.below, _largest(tensor.dtype) + 1)), shape)
        case "bytes":
            limits = np.iinfo(tensor.dtype)
            return generator.integers(limits.min, limits.max, shape, endpoint=True)
        case "counts":
            return generator.integers(0, _COUNTS, shape)
        case "lengths":
            return np.full(shape, min(longest, _largest(tensor.dtype)))
    if tensor.dtype == "float64":
        return generator.standard_normal(shape)
    if tensor.dtype.startswith(("float", "bfloat")):
        return generator.standard_normal(shape, np.float32)
    return generator.integers(0, 2, shape)


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Returns ones, with a tail of zeros over at most a quarter of each row; the first row is all ones."""
    if not shape or 0 in shape:
        return np.ones(shape, np.float32)
    length = shape[-1]
    tails = generator.integers(0, length // 4, (*shape[:-1], 1), endpoint=True)
    if tails.size > 1:
        tails[(0,) * tails.ndim] = 0
    else:
        tails[...] = length // 4
    return np.asarray(np.arange(length) < length - tails).astype(np.float32)


def _largest(dtype: str) -> int:
    return int(np.iinfo(dtype).max) if dtype.startswith(("int", "uint")) else 1


def load_inputs(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an `.npz` file by name.

    Raises:
        InputError: it is missing or is no `.npz` file of plain arrays.
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


def load_arranged(tensors: Sequence[Tensor], path: str | os.PathLike[str]) -> list[Array]:
    """The arrays of a model's inputs in its order, from an `.npz` file.

    Raises:
        InputError: as for `load_inputs` and `arrange_inputs`; the message begins with the file.
    """
    loaded = load_inputs(path)
    try:
        return arrange_inputs(tensors, [loaded])
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as an `.npz` file, all at once; any name will do.

    Raises:
        InputError: one is no array of numbers, or the disk refuses.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                try:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
                except ValueError as error:
                    raise InputError(f"{name!r} is no array of numbers: {error}") from error
    write_whole(path, buffer.getvalue())


def _checked(tensor: Tensor, value: Any) -> Array:
    array = np.asarray(value)
    dtype = numpy_dtype(tensor.dtype)
    if array.dtype != dtype:
        raise InputError(f"input {tensor.name!r} is {array.dtype}, {dtype} is needed; use .astype({dtype.name!r})")
    if array.shape != tensor.shape:
        raise InputError(f"input {tensor.name!r} has shape {array.shape}, {tensor.shape} is needed")
    if tensor.bounds is not None and array.size:
        least, greatest = tensor.bounds
        for value in (int(array.min()), int(array.max())):
            if not least <= value <= greatest:
                position = [int(at) for at in np.argwhere(array == value)[0]]
                size = f" ({greatest + 1} entries)" if least in (0, -greatest - 1) else ""
                raise InputError(
                    f"input {tensor.name!r} holds {value} at {position}, an index that must lie between {least} and "
                    f"{greatest}{size}"
                )
    return array


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def check_indices(checks: Sequence[IndexCheck], indices: Sequence[Array]) -> None:
    """Checks the indices that a network returns after its outputs; kernels never read or write outside the bounds.

    Raises:
        InputError: an index is out of bounds; the message names the node, the value and the size.
    """
    for check in checks:
        array = indices[check.result]
        sizes = np.array(check.sizes if len(check.sizes) > 1 else check.sizes[0], np.int64)
        lowest = -sizes if check.negative else np.zeros_like(sizes)
        if not array.size or (array.min() >= lowest.max() and array.max() < sizes.min()):
            continue
        outside = (array < lowest) | (array >= sizes)
        if outside.any():
            place = tuple(int(at) for at in np.argwhere(outside)[0])
            offset = place[-1] if len(check.sizes) > 1 else 0
            raise InputError(
                f"{check.node}: the inputs lead to index {int(array[place])}, which is outside of axis "
                f"{check.axis + offset} with {check.sizes[offset]} elements"
            )
