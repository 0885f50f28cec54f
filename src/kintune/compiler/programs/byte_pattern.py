"""What a sum of products of bytes computes, as a value: the windows of a convolution, or none for a product.

The graph pass that makes the function writes it on the block of the sums; the program of our own reads it there.
"""

from __future__ import annotations

from typing import Any

import msgspec
import tvm
import tvm_ffi

__all__ = ["ANNOTATION", "ByteProduct", "byte_product_of", "sums_bytes"]

ANNOTATION = "kintune.bytes"
"""The annotation of the block that sums products of bytes."""


class ByteProduct(msgspec.Struct, frozen=True):
    """Sums of products of bytes (uint8) with weights (int8), in int32.

    A product has data [..., k] and weights [k, f] or, `batched`, [..., k, f] with the data's first axes.  A convolution
    has data [n, h, w, c] and weights [i, j, c, f]; it has `strides` and `dilations` by rows and columns, and `point`
    stands around the data: `pads` rows above, columns to the left, rows below and columns to the right.  A point of
    None is read from a tensor of one element.
    """

    convolves: bool = False
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    point: int | None = 0
    batched: bool = False

    @property
    def text(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def byte_product_of(block: Any) -> ByteProduct | None:
    """What a block sums; None for another block."""
    text = (block.annotations or {}).get(ANNOTATION)
    return None if text is None else msgspec.json.decode(str(text), type=ByteProduct)


def sums_bytes(function: Any) -> bool:
    """Whether a function has a block that sums products of bytes."""
    found: list[bool] = []
    tvm_ffi.structural_walk(
        function.body, [(tvm.s_tir.SBlock, lambda block: found.append(byte_product_of(block) is not None))]
    )
    return any(found)
