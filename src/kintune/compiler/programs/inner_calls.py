"""Calls of the functions of an inner kernel, which is a text in LLVM's language, and the addresses they are given."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

__all__ = ["BF16_BITS", "IMPORT", "address", "call_inner", "odd_lines"]

IMPORT = "pragma_import_llvm"
"""The attribute of a statement that needs functions in LLVM's text."""

BF16_BITS = "uint16"
"""How values of bf16 are addressed: the compiler has no pointers to them until late."""

_READ_WRITE = 3


def address(buffer: Any, offset: Any, stored: str = "") -> Any:
    """The address of an element, by its number in the buffer; `stored` is its type, if that is not the buffer's."""
    dtype = str(buffer.dtype)
    stored = stored or (BF16_BITS if dtype == "bfloat16" else dtype)
    size = math.prod(map(int, buffer.shape))
    return tirx.op.tvm_access_ptr(stored, buffer.data, offset, size - offset, _READ_WRITE)


def call_inner(name: str, *arguments: Any) -> Any:
    """A call of a function of the inner kernel's text, which returns zero; Python's numbers are passed as int32."""
    given = [tirx.const(each, "int32") if isinstance(each, int) else each for each in arguments]
    return tirx.call_extern("int32", name, *given)


def odd_lines(values: int, line: int) -> int:
    """The least number of values, at least `values`, that fills an odd number of cache lines of `line` values each.

    Rows of this length begin in different sets of the cache.
    """
    lines = -(-values // line)
    return (lines + (lines + 1) % 2) * line
