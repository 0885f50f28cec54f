"""Converts between the compiler's tensors and numpy arrays, over the same memory where that is possible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from kintune.core.dtypes import numpy_dtype
from kintune.runtime.inputs import Array
from kintune.runtime.package import ALIGNMENT, Block

__all__ = ["array_of", "as_argument", "block_of", "leaves_of", "tensor_of"]

_PLAIN = "fiub"  # the kinds of dtypes that numpy itself knows


def array_of(tensor: tvm.runtime.Tensor) -> Array:
    """Returns an array over the memory of a CPU tensor."""
    dtype = numpy_dtype(str(tensor.dtype))
    array: Array = np.from_dlpack(tensor) if dtype.kind in _PLAIN else _bytes(tensor).view(dtype)
    return array.reshape(tuple(tensor.shape))


def as_argument(array: Array) -> tvm.runtime.Tensor | None:
    """Returns a tensor over the array's memory; None where the runtime does not allow that."""
    if array.dtype.kind in _PLAIN and array.flags.carray and _address(array) % ALIGNMENT == 0:
        return tvm.runtime.from_dlpack(array)
    return None


def tensor_of(block: Block) -> tvm.runtime.Tensor:
    """Returns a tensor over the block's memory, or over a copy if that is not aligned."""
    data = block.data
    flat = tvm.runtime.from_dlpack(data) if _address(data) % ALIGNMENT == 0 else tvm.runtime.tensor(data)
    return flat._create_view(block.shape, block.dtype)


def block_of(tensor: tvm.runtime.Tensor) -> Block:
    """Returns a CPU tensor in the form that is written to a file."""
    return Block(tuple(int(extent) for extent in tensor.shape), str(tensor.dtype), _bytes(tensor))


def leaves_of(result: Any) -> list[tvm.runtime.Tensor]:
    """Returns the tensors in a network's result, however nested."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [leaf for item in result for leaf in leaves_of(item)]


def _bytes(tensor: tvm.runtime.Tensor) -> npt.NDArray[np.uint8]:
    """Returns the tensor's memory as bytes."""
    nbytes = math.prod(tensor.shape) * numpy_dtype(str(tensor.dtype)).itemsize
    return np.from_dlpack(tensor._create_view((nbytes,), "uint8")).view(np.uint8)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
