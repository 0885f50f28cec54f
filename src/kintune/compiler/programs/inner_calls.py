"""Calls of the functions of an inner kernel, which is a text in LLVM's language, and the addresses they are given.

An address says how many bytes are read or written from it on, so that it can be proven that they lie in its buffer
(`kintune.compiler.bounds`).  The number is the writer's of the text, computed from what the text is written with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.programs.panel_text import touched_bytes
from kintune.core.dtypes import numpy_dtype

__all__ = ["BF16_BITS", "IMPORT", "Address", "address", "call_inner", "odd_lines"]

IMPORT = "pragma_import_llvm"
"""The attribute of a statement that needs functions in LLVM's text."""

BF16_BITS = "uint16"
"""How values of bf16 are addressed: the compiler has no pointers to them until late."""

_READ_WRITE = 3


class Address(NamedTuple):
    """The address of element number `offset` of a buffer, whose elements are addressed as of the type `stored`."""

    buffer: Any
    offset: Any
    stored: str

    def touched(self, nbytes: Any) -> Any:
        """The pointer for a function that reads or writes so many bytes from here on."""
        elements = (nbytes + numpy_dtype(self.stored).itemsize - 1) // numpy_dtype(self.stored).itemsize
        return tirx.op.tvm_access_ptr(self.stored, self.buffer.data, self.offset, elements, _READ_WRITE)


def address(buffer: Any, offset: Any, stored: str = "") -> Address:
    """The address of an element, by its number in the buffer; `stored` is its type, if that is not the buffer's."""
    dtype = str(buffer.dtype)
    return Address(buffer, offset, stored or (BF16_BITS if dtype == "bfloat16" else dtype))


def call_inner(name: str, *arguments: Any, columns: int = 0) -> Any:
    """A call of a function of `panel_text`, which returns zero; Python's numbers are passed as int32.

    Products have so many `columns`.
    """
    numbers = [each for each in arguments if not isinstance(each, Address)]
    nbytes = iter(touched_bytes(name, numbers, columns))
    given = [
        each.touched(next(nbytes))
        if isinstance(each, Address)
        else tirx.const(each, "int32")
        if isinstance(each, int)
        else each
        for each in arguments
    ]
    return tirx.call_extern("int32", name, *given)


def odd_lines(values: int, line: int) -> int:
    """The least number of values, at least `values`, that fills an odd number of cache lines of `line` values each.

    Rows of this length begin in different sets of the cache.
    """
    lines = -(-values // line)
    return (lines + (lines + 1) % 2) * line
