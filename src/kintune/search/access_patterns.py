"""The access patterns of a workload's core block: which elements of its operands the loops touch.  Does not need TVM.

Together with the tile factors of a candidate, they give the working sets and the traffic between registers, caches and
memory without making the program.
"""

from __future__ import annotations

import msgspec

__all__ = ["AccessPatterns", "OperandAccess"]


class OperandAccess(msgspec.Struct, frozen=True):
    """One operand of the core block.

    When loop `a` advances by one, the index of dimension `d` advances by `steps[d][a]` elements; an index that is not
    linear in the loops counts as 1 for each loop that it uses.  `shape` is in elements of `width` bytes.
    `weight` is True for a constant tensor whose layout can be chosen for the program.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    width: int
    written: bool = False
    weight: bool = False


class AccessPatterns(msgspec.Struct, frozen=True):
    """The core block of a workload: its name, the extents of its loops, which of them reduce, and its operands.

    Loops are in the order of the block, which is also the order of a sketch's tiles.
    """

    block: str
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    accesses: tuple[OperandAccess, ...]
