"""Describes a product with blockwise quantised weights, as a value and as the text of an annotation.

The block of a kernel that computes the sums has the annotation `kintune.blockwise`.  Does not import TVM.
"""

from __future__ import annotations

import msgspec

__all__ = ["ANNOTATION", "BITS", "PACKED", "REAL", "Blockwise", "parse_blockwise"]

ANNOTATION = "kintune.blockwise"
"""The annotation of the block that sums products with blockwise quantised weights."""

BITS = (2, 4, 8)
"""The bits that a weight may have."""

PACKED, REAL = "packed", "real"
"""Zero points in as many bits as the weights have, or of float32."""


class Blockwise(msgspec.Struct, frozen=True):
    """A product of data `[..., inputs]` with weights of 2, 4 or 8 bits, with a scale for `block` weights of a column.

    A weight is `(integer - zero point) * scale`.  The kernel takes, with `blocks` blocks of each of N columns:

    - data, float32 `[..., inputs]`;
    - integers, uint8 `[blocks * block * bits / 8, N]`; of several in a byte the first has the lowest bits;
    - scales, float32 `[blocks, N]`;
    - zero points: none (`zeros` is ""; they are `middle`), uint8 `[ceil(blocks * bits / 8), N]` ("packed") or float32
      `[blocks, N]` ("real").

    Integers of the last block beyond the last input are not read.
    """

    bits: int
    block: int
    inputs: int
    zeros: str = ""

    @property
    def blocks(self) -> int:
        """The number of blocks of a column."""
        return -(-self.inputs // self.block)

    @property
    def depth(self) -> int:
        """The number of integers of a column: that of its inputs, rounded up to whole blocks."""
        return self.blocks * self.block

    @property
    def middle(self) -> int:
        """The zero point of weights that have none of their own."""
        return 1 << (self.bits - 1)

    @property
    def text(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def parse_blockwise(text: str) -> Blockwise:
    """The product that an annotation describes."""
    return msgspec.json.decode(text, type=Blockwise)
