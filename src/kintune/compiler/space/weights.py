"""Which parameters of a function are weights, whose layout a schedule may choose."""

from __future__ import annotations

from typing import Any

__all__ = ["LAYOUT_FREE", "LAYOUT_FREE_OPERANDS", "weight_positions"]

LAYOUT_FREE = "layout_free_buffers"
"""The attribute of a PrimFunc that holds the positions of the parameters whose layout a schedule may choose."""

LAYOUT_FREE_OPERANDS = "layout_free_placeholders"
"""The attribute of a block with the buffers, written by others, that a schedule may lay out as it likes."""


def weight_positions(function: Any) -> frozenset[int]:
    """The positions of the parameters of a PrimFunc whose layout a schedule may choose: its weights."""
    attributes = function.attrs
    return (
        frozenset(int(i) for i in attributes[LAYOUT_FREE]) if attributes and LAYOUT_FREE in attributes else frozenset()
    )
