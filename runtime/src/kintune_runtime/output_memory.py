"""Memory for large outputs, which is reused once nothing refers to the arrays that were returned in it.

The system maps fresh memory page by page as it is first written, which for a large output takes longer than writing it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from .inputs import Array

__all__ = ["OutputMemory", "address_of"]

_ALIGNMENT = 64  # bytes; what kernels assume of every tensor
_COPIED = 1 << 16  # bytes; up to so many it costs less to copy an output than to align its memory
_KEPT = 2  # blocks: the caller often holds the last output while the next one is computed

_from_buffer: Any = ctypes.c_char.from_buffer
_address_of = ctypes.addressof
_references: Any = getattr(sys, "getrefcount", lambda _: sys.maxsize)  # without counts, no memory is reused
_alone = [object()]
_ALONE = _references(_alone[0]) if hasattr(sys, "getrefcount") else 0  # the count of an object that only a list holds


class OutputMemory:
    """Makes the arrays of one output of this shape, type and size in bytes."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> None:
        self._shape, self._dtype, self._nbytes = shape, dtype, nbytes
        self._blocks: list[Array] = []

    def array(self) -> Array:
        """An array with arbitrary contents, which shares no memory with earlier ones that are still referenced.

        A large one lies at a multiple of 64 bytes, so that a network writes to it without a copy.
        """
        if self._nbytes <= _COPIED:
            return np.empty(self._shape, self._dtype)
        block = self._block()
        start = -address_of(block) % _ALIGNMENT
        return block[start : start + self._nbytes].view(self._dtype).reshape(self._shape)

    def _block(self) -> Array:
        """A block that no array lies in; views, and views of views, count as references to the block."""
        blocks = self._blocks
        for number in range(len(blocks)):
            if _references(blocks[number]) == _ALONE:
                return blocks[number]
        made = np.empty(self._nbytes + _ALIGNMENT, np.uint8)
        blocks.insert(0, made)
        del blocks[_KEPT:]
        return made


def address_of(array: Array) -> int:
    """The address of an array's first element."""
    try:
        return _address_of(_from_buffer(array))
    except (TypeError, ValueError):  # it is read-only, has no element, or a type that the buffer protocol lacks
        return int(array.__array_interface__["data"][0])
