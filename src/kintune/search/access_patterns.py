"""How the core of a workload touches its operands, as plain numbers; free of TVM.

From this and the factors of a candidate's tiles one can tell, without making the program, what it holds in registers
and caches and how much it moves between them.
"""

from __future__ import annotations

import msgspec

__all__ = ["Access", "AccessPatterns"]


class Access(msgspec.Struct, frozen=True):
    """One operand of the core block.

    When loop `a` goes on by one, dimension `d` goes on by `steps[d][a]` elements; a step of a constant, or one that is
    not known, counts as its loop's share of the dimension.  `shape` is in elements of `width` bytes.  `weight` says
    that it is constant from run to run and laid out as the program wants it.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    width: int
    written: bool = False
    weight: bool = False


class AccessPatterns(msgspec.Struct, frozen=True):
    """The core block of a workload: the extents of its loops, those that reduce, and its operands.

    `block` is its name; loops are in the order in which the block lists them, which is that of a sketch's tiles.
    """

    block: str
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    accesses: tuple[Access, ...]
