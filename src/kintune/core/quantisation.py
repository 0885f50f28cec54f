"""The result of quantising a model: the number of quantised products, and the error that this causes."""

from __future__ import annotations

import msgspec

__all__ = ["INT8", "Quantised"]

INT8 = "int8"
"""The precision of what computes on integers of 8 bits."""


class Quantised(msgspec.Struct, frozen=True):
    """A model of which `int8` of its `products` compute on integers.

    Products are convolutions and products of matrices with constant weights.  `left` names those that were not
    quantised, the one with the largest error first.  `error` is the error of onnxruntime running the same quantised
    graph: the norm of an output's error as a share of the norm of that output, the worst output and input counting.  It
    was measured on `held_back` sets of inputs that the choice had not seen, or, if that is 0, on those of the choice;
    it is None where nothing was quantised.  `everything` is the same error with all products quantised, on the inputs
    of the choice.

    With `bits`, only weights are quantised, to so many, and `int8` counts the products that have such; data stay fp32.
    """

    products: int
    int8: int
    left: tuple[str, ...] = ()
    error: float | None = None
    everything: float | None = None
    held_back: int = 0
    bits: int = 0

    @property
    def form(self) -> str:
        """What the quantised products compute with, in words."""
        return f"weights of {self.bits} bits" if self.bits else INT8
