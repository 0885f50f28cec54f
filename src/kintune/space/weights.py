"""Which arguments of a program are weights, as lowering has marked them."""

from __future__ import annotations

from typing import Any

__all__ = ["weight_positions"]

_WEIGHTS = "layout_free_buffers"


def weight_positions(function: Any) -> frozenset[int]:
    """The positions of the parameters of a PrimFunc whose layout a schedule may choose: its weights."""
    attributes = function.attrs
    return frozenset(int(i) for i in attributes[_WEIGHTS]) if attributes and _WEIGHTS in attributes else frozenset()
