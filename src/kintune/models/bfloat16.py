"""Casts to bfloat16 and back that a program asks for: they round, though the compiler computes bfloat16 in float32.

Inside of a kernel a cast to bfloat16 and back is nothing.  So the second one is written as an explicit rounding, also
where the tensor was reshaped, transposed or sliced in between.  Casts that converters add on their own are no such
pairs: to compute with more digits there is meant.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from kintune.models.expressions import dtype_of, rounded_to_bfloat16

__all__ = ["Shortened"]


class Shortened:
    """The tensors that a program has cast from float32 to bfloat16, and those that are moved from them."""

    def __init__(self) -> None:
        self._wide: dict[Any, Any] = {}  # a tensor of bfloat16 -> what it was; None after a move

    def cast(self, source: Any, result: Any) -> None:
        """Note that the program has cast `source` to the tensor `result`."""
        if (dtype_of(source), dtype_of(result)) == ("float32", "bfloat16"):
            self._wide[result] = source

    def moved(self, source: Any, result: Any) -> None:
        """Note that `result`, one tensor or several, has elements of `source`, and nothing but these."""
        if source in self._wide:
            for part in result if isinstance(result, list | tuple) else [result]:
                self._wide.setdefault(part, None)

    def restored(self, builder: relax.BlockBuilder, tensor: Any) -> Any:
        """A call, not bound yet, that is the tensor cast to float32, rounded; None for any other tensor."""
        if tensor not in self._wide:
            return None
        wide = self._wide[tensor]
        if wide is None:
            wide = builder.normalize(relax.op.astype(tensor, "float32"))
        return rounded_to_bfloat16(builder, wide)
