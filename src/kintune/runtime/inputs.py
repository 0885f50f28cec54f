"""A model's inputs as arrays: reads and writes files, checks indices; `kintune_runtime.inputs` draws them."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kintune.core.model import Combination, IndexCheck, Tensor
from kintune.errors import InputError
from kintune.files import open_regular, write_whole
from kintune_runtime.inputs import Array, arrange_inputs, choose_plan, draw_inputs

__all__ = [
    "Array",
    "arrange_inputs",
    "check_indices",
    "draw_inputs",
    "encode_arrays",
    "is_strings",
    "load_arranged",
    "load_fitting",
    "load_inputs",
    "write_arrays",
]


def load_inputs(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an `.npz` file by name.

    Raises:
        InputError: it is missing or is no `.npz` file of plain arrays.
    """
    try:
        with open_regular(path) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InputError(f"{path}: a single array without a name; save inputs by name with numpy.savez")
            return {name: loaded[name] for name in loaded.files}
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except MemoryError as error:
        raise InputError(f"{path}: there is not enough memory for its arrays: {_line(error)}") from error
    except Exception as error:  # numpy lets through what Python's parser and the unpackers raise
        why = "" if "pickle" in str(error) else f": {_line(error)}"  # numpy advises to load it unsafely
        raise InputError(f"{path}: not an .npz file of plain arrays{why}") from error


def _line(error: BaseException) -> str:
    said = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__


def load_arranged(tensors: Sequence[Tensor], path: str | os.PathLike[str]) -> list[Array]:
    """The arrays of a model's inputs in its order, from an `.npz` file.

    Raises:
        InputError: as for `load_inputs` and `arrange_inputs`; the message begins with the file.
    """
    return load_fitting([Combination(tuple(tensors), ())], path)[1]


def load_fitting(combinations: Sequence[Combination], path: str | os.PathLike[str]) -> tuple[int, list[Array]]:
    """The number of the combination of shapes that the arrays of an `.npz` file have, and these arrays in its order.

    Raises:
        InputError: as for `load_inputs` and `arrange_inputs`, or no combination has these shapes; the message begins
            with the file.
    """
    loaded = load_inputs(path)
    try:
        number = choose_plan([each.inputs for each in combinations], [loaded])
        return number, arrange_inputs(combinations[number].inputs, [loaded])
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as an `.npz` file, all at once, as `encode_arrays` does.

    Raises:
        InputError: one is no array of numbers or strings, or the disk refuses.
    """
    write_whole(path, encode_arrays(arrays))


def encode_arrays(arrays: Mapping[str, Any], compression: int = zipfile.ZIP_STORED) -> bytes:
    """The content of an `.npz` file of these arrays; any name will do.  Strings are written with a fixed width.

    `compression` is one of zipfile's constants.

    Raises:
        InputError: one is no array of numbers or strings.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                try:
                    np.lib.format.write_array(member, _plain(array), allow_pickle=False)
                except ValueError as error:
                    raise InputError(f"{name!r} is no array of numbers or strings: {error}") from error
    return buffer.getvalue()


def is_strings(array: Any) -> bool:
    """Whether an array of objects holds nothing but strings."""
    return isinstance(array, np.ndarray) and array.dtype == object and all(isinstance(each, str) for each in array.flat)


def _plain(array: Any) -> Array:
    return array.astype(str) if is_strings(array) else np.asanyarray(array)


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
