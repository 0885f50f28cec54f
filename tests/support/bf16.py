"""Values of bf16, as the bits of integers, and functions that take some parameters in bf16."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bits", "computed", "widened"]


def computed(module: Any, target: Any, narrow: frozenset[int], rounded: frozenset[int]) -> np.ndarray[Any, Any]:
    """What a function computes of random arrays, those `rounded` of values of bf16; it takes those in `narrow` so."""
    import tvm

    random = np.random.default_rng(0)
    arrays = []
    for position, parameter in enumerate(module["main"].params):
        array = random.standard_normal([int(extent) for extent in parameter.shape]).astype(np.float32)
        array = widened(bits(array)) if position in rounded else array
        arrays.append(tvm.runtime.tensor(bits(array)) if position in narrow else tvm.runtime.tensor(array))
    given_to = [
        array._create_view(array.shape, "bfloat16") if position in narrow else array
        for position, array in enumerate(arrays)
    ]
    tvm.compile(module, target)["main"](*given_to)
    found = np.asarray(arrays[-1].numpy())
    return widened(found) if found.dtype == np.uint16 else found


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values rounded to bf16, to the nearest and ties to even, as 16 bits."""
    wide = array.view(np.uint32).astype(np.uint64)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (array.astype(np.uint32) << 16).view(np.float32)
