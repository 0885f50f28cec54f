"""Reads the weights that an ONNX file keeps in other files, which must be in the same directory or below it.

A model may name any file as its data file, so a hostile one could make the reader open any file.  Data files are read
for models that the user names and for those that Kintune has written, never for models handed in by others.  Only
relative paths below the model's own directory are followed, component by component from an open directory, and never
through a symbolic link.  So a path cannot be redirected between check and use.  There is one exception: the text of a
link inside a Hugging Face cache is read, and the file of that name in the same cache's `blobs` is opened, again
component by component.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kintune.errors import ModelError
from kintune.models.stored_size import PACKED_BITS

if TYPE_CHECKING:
    from typing import Any

__all__ = ["ExternalData"]

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class ExternalData:
    """Reads the tensors that the model at `model` keeps in other files; each file is mapped once, read only.

    With `own`, the model is the user's own file, and links of a Hugging Face cache are followed within that cache.
    Without, somebody else has handed it in, and no other file is read.
    """

    def __init__(self, model: Path, *, own: bool = False) -> None:
        self._model = model
        self._own = own
        self._cache = _cache_of(model) if own else None
        self._files: dict[str, NDArray[np.uint8]] = {}

    def read(self, tensor: TensorProto) -> NDArray[Any]:
        """The tensor's values, as a view of the mapped file, or unpacked where several elements share a byte.

        Raises:
            ModelError: for a model that is not the user's own, a path that leaves the model's directory, a link, a
                missing or short file, or sizes that do not fit the tensor.
        """
        label = f"{self._model}: weight {tensor.name!r}"
        if not self._own:
            raise ModelError(f"{label}: lies in another file, which is not read; save the model as one file")
        entries = {entry.key: entry.value for entry in tensor.external_data}
        parts = _safe_parts(entries.get("location", ""), label)
        shape = tuple(tensor.dims)
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        except KeyError as error:
            raise ModelError(f"{label}: has the unknown element type {tensor.data_type}") from error
        if dtype.kind == "O" or any(dim < 0 for dim in shape):
            raise ModelError(f"{label}: tensors of this type or shape cannot be kept in an external file")
        bits = PACKED_BITS.get(TensorProto.DataType.Name(tensor.data_type))
        expected = -(-math.prod(shape) * (bits or 8 * dtype.itemsize) // 8)
        offset = _whole_number(entries, "offset", 0, label)
        length = _whole_number(entries, "length", expected, label)
        if length != expected:
            raise ModelError(f"{label}: has {length} bytes of external data where its shape needs {expected}")
        data = self._map("/".join(parts), parts, label)
        if offset + length > data.size:
            raise ModelError(
                f"{label}: lies at bytes {offset} to {offset + length} of {'/'.join(parts)}, which has {data.size}; "
                "the file is incomplete"
            )
        found = data[offset : offset + length]
        if bits is not None:
            packed = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=found.tobytes())
            return np.asarray(numpy_helper.to_array(packed))
        values: NDArray[Any] = found.view(dtype.newbyteorder("<")).reshape(shape)
        return values

    def path_of(self, location: str) -> str:
        """The path of the data file that a model calls `location`, which is not read.

        Raises:
            ModelError: as for `read`.
        """
        label = f"{self._model}"
        parts = _safe_parts(location, label)
        descriptor = self._open(parts, label)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ModelError(f"{label}: {location} is not a regular file")
        finally:
            os.close(descriptor)
        return str(self._model.parent.joinpath(*parts))

    def _map(self, name: str, parts: tuple[str, ...], label: str) -> NDArray[np.uint8]:
        if name not in self._files:
            descriptor = self._open(parts, label)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise ModelError(f"{label}: {name} is not a regular file")
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    empty = status.st_size == 0
                    self._files[name] = np.empty(0, np.uint8) if empty else np.memmap(file, np.uint8, "r")
            finally:
                os.close(descriptor)
        return self._files[name]

    def _open(self, parts: tuple[str, ...], label: str) -> int:
        if self._cache is None:
            return _open_below(self._model.parent, parts, label)
        repository, folders = self._cache
        inner = (*folders, *parts)
        if (blob := _blob(repository, inner)) is not None:
            return _open_below(repository, ("blobs", blob), label)
        return _open_below(repository, inner, label)


def _safe_parts(location: str, label: str) -> tuple[str, ...]:
    """The components of `location`; raises a `ModelError` unless it is a relative path without `..`."""
    path = PurePosixPath(location)
    windows = PureWindowsPath(location)
    if (
        not path.parts
        or path.is_absolute()
        or windows.drive
        or windows.root
        or ".." in (*path.parts, *windows.parts)
        or "\0" in location
    ):
        raise ModelError(f"{label}: its data file {location!r} is not beside the model; such paths are not followed")
    return path.parts


def _cache_of(model: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The folder of a repository in a Hugging Face cache, and the folders from there to the model; None elsewhere.

    The cache has `snapshots/REVISION/...`, whose links users name, beside `blobs`, where the content is.
    """
    parts = model.absolute().parts
    for at in range(len(parts) - 3, 0, -1):
        if parts[at] == "snapshots" and ".." not in parts[at:]:
            return Path(*parts[:at]), parts[at:-1]
    return None


def _blob(repository: Path, parts: tuple[str, ...]) -> str | None:
    """The name of the file in `blobs` to which the link at `parts` below the repository points; None if it is no such.

    Only the text of the link is read.  The caller opens a file in `blobs`, even if the link is changed meanwhile.
    """
    at = -1
    try:
        at = _open_folder(repository, parts[:-1])
        target = os.readlink(parts[-1], dir_fd=at)
    except OSError:
        return None  # no link: `_open_below` opens the file, and reports errors
    finally:
        if at >= 0:
            os.close(at)
    up = "../" * (len(parts) - 1)
    for blobs in (f"{up}blobs/", f"{repository.absolute()}/blobs/"):
        name = target.removeprefix(blobs)
        if name != target and name not in ("", ".", "..") and "/" not in name:
            return name
    return None


def _open_folder(directory: Path, parts: tuple[str, ...]) -> int:
    """Open a folder below `directory` without following any symbolic link on the way; return its descriptor.

    It can be looked into by name, and not listed, which an isolated process may not.
    """
    at = os.open(directory, _FOLDER)
    for folder in parts:
        try:
            below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def _open_below(directory: Path, parts: tuple[str, ...], label: str) -> int:
    """Open a file below `directory` without following any symbolic link on the way; return its descriptor."""
    at = -1
    try:
        at = _open_folder(directory, parts[:-1])
        # Without O_NONBLOCK, opening a pipe would block until it has a writer.
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError as error:
        raise ModelError(f"{label}: its data file {'/'.join(parts)} is missing beside the model") from error
    except OSError as error:
        raise ModelError(
            f"{label}: its data file {'/'.join(parts)} cannot be opened ({error.strerror}); links are not followed, "
            "put the file itself beside the model"
        ) from error
    finally:
        if at >= 0:
            os.close(at)


def _whole_number(entries: dict[str, str], key: str, default: int, label: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{label}: the {key} of its external data is not a number: {text!r}")
    return int(text)
