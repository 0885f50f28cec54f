"""What is asked of functions of TVM's tensor IR in many places, and TVM's own names for their attributes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import Schedule

__all__ = [
    "PATTERN", "SCHEDULED", "Fusion", "called", "is_number", "names_called", "nodes_in", "plain_schedule", "without",
]  # fmt: skip

SCHEDULED = "tirx.is_scheduled"
"""The attribute of a function that no pass may schedule any more."""

PATTERN = "op_pattern"
"""The attribute of a function that says how it may be fused: a `Fusion`."""


class Fusion(IntEnum):
    """TVM's classes of functions, by what is fused with them."""

    BROADCAST = 1
    """Each element of the result depends on one of each operand at most: anything."""
    INJECTIVE = 2
    """Elements are moved."""
    REDUCTION = 3
    """What computes the operands."""
    WITH_EPILOGUE = 4
    """Element-wise functions that follow."""
    OPAQUE = 8
    """Nothing."""


def nodes_in(node: Any, *kinds: Any) -> list[Any]:
    """The nodes of these kinds in a statement or expression, once for each place."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, [(kind, found.append) for kind in kinds])
    return found


def called(expression: Any) -> str:
    """The name of the operator that an expression calls; empty where it calls none."""
    return str(getattr(getattr(expression, "op", None), "name", ""))


def names_called(node: Any) -> set[str]:
    """The names of the operators that are called in a statement or expression."""
    return set(map(called, nodes_in(node, tvm.ir.Call)))


def is_number(expression: Any, number: int) -> bool:
    """Whether an expression is this constant."""
    return isinstance(expression, tvm.tirx.IntImm) and int(expression) == number


def without(function: Any, *attributes: str) -> Any:
    """The function without these attributes, as far as it has them."""
    for attribute in attributes:
        if attribute in (function.attrs or {}):
            function = function.without_attr(attribute)
    return function


def plain_schedule(module: Any) -> Schedule:
    """A schedule of a module, or of a function as its `main`, whose errors are plain text."""
    whole = module if isinstance(module, tvm.IRModule) else tvm.IRModule({"main": module})
    return Schedule(whole, debug_mask=0, error_render_level="none")
