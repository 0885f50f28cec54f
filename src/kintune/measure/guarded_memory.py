"""Memory for one argument of an untrusted kernel, between guard bands that show writes out of bounds."""

from __future__ import annotations

import math
import mmap
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tvm.runtime

from kintune.errors import DeviceError

__all__ = ["GUARD", "DeviceMemory", "GuardedMemory", "numpy_dtype"]

GUARD = 4096
"""Bytes before and after the argument, a multiple of a page and of every alignment a kernel asks for."""

_PATTERN = 0xA5


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the numpy type of a compiler's type name, bfloat16 and the 8-bit floats included.

    Raises:
        DeviceError: arguments of this type cannot be laid out (4-bit types, vectors, handles).
    """
    try:
        if name.startswith(("bfloat", "float8")):
            short: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return short
        dtype = np.dtype(name)
    except (AttributeError, TypeError) as error:
        raise DeviceError(f"no arguments of type {name} can be laid out") from error
    if dtype.isbuiltin != 1 or dtype.kind not in "biuf":
        raise DeviceError(f"no arguments of type {name} can be laid out")
    return dtype


class GuardedMemory:
    """An array between two guard bands, in pages of its own.

    The pages come straight from the kernel, as those of the runtime do: numpy would ask for huge pages, with which
    large weights look faster than they are in the program that runs later.  A write that misses the array by less than
    a page lands in a band, does no harm, and is seen in `fingerprint`.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        size = 2 * GUARD + -(-nbytes // 8) * 8
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory: npt.NDArray[np.uint8] = np.frombuffer(pages, np.uint8)
        self._memory[:GUARD] = _PATTERN
        self._memory[GUARD + nbytes :] = _PATTERN

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: str, *where: Any) -> GuardedMemory:
        """Allocates memory for an array of this shape and type, zeroed; `where` are further arguments of the class."""
        return cls(math.prod(shape) * numpy_dtype(dtype).itemsize, *where)

    def array(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """Returns the memory as a numpy array; writing to it writes to the argument."""
        kind = numpy_dtype(dtype)
        data = self._memory[GUARD : GUARD + math.prod(shape) * kind.itemsize]
        return data.view(kind).reshape(shape)

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns the memory as a tensor of the compiler's runtime, not copied."""
        array = self.array(shape, dtype)
        if array.dtype.isbuiltin == 1:
            return tvm.runtime.from_dlpack(array)
        raw = tvm.runtime.from_dlpack(array.view(f"uint{8 * array.dtype.itemsize}"))
        return raw._create_view(shape, dtype)

    def push(self) -> None:
        """Copies `array` to where kernels run; here it is the same memory."""

    def pull(self) -> None:
        """Copies what kernels have written to `array`; here it is the same memory."""

    def fingerprint(self) -> int:
        """Returns a sum over the array and its guard bands, which changes when somebody writes to either."""
        return int(np.add.reduce(self._memory.view(np.uint64)))

    def guards_fingerprint(self) -> int:
        """Returns a checksum of the guard bands alone."""
        before, after = self._memory[:GUARD], self._memory[GUARD + self.nbytes :]
        return int(before.sum(dtype=np.uint64)) << 32 | int(after.sum(dtype=np.uint64))


class DeviceMemory(GuardedMemory):
    """Guarded memory of a device, with a copy in this process: `push` and `pull` copy between them.

    It has no guard band before the array where a kernel's argument cannot begin inside another tensor: then
    `has_front_guard` is False.
    """

    def __init__(self, nbytes: int, device: Any, *, has_front_guard: bool = True) -> None:
        super().__init__(nbytes)
        self._copied = self._memory[0 if has_front_guard else GUARD :]
        self._on_device = tvm.runtime.empty((self._copied.size,), "uint8", device)
        self._argument = self._on_device

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns the device's memory as a tensor, not copied."""
        return self._argument._create_view(shape, dtype)

    def push(self) -> None:
        """Copies the array and its guard bands to the device."""
        self._on_device.copyfrom(self._copied)

    def pull(self) -> None:
        """Copies the array and its guard bands from the device."""
        np.copyto(self._copied, self._on_device.numpy())
