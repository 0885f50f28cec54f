"""Calls of functions that are texts of LLVM, and the addresses that they are given.

An address says how many bytes are read or written from it on, so that it can be proven that they lie in its buffer
(`kintune.compiler.bounds`).  The number is the writer's of the text, computed from what the text is written with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.copies import touched_bytes
from kintune.compiler.kernels.microkernel import Kernel
from kintune.core.dtypes import numpy_dtype

__all__ = ["BF16_BITS", "IMPORT", "Address", "address", "call_copy", "call_kernel", "odd_lines"]

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


def call_copy(name: str, *arguments: Any) -> Any:
    """A call of a function of `copies`; Python's numbers are passed as int32."""
    nbytes = iter(touched_bytes(name, [each for each in arguments if not isinstance(each, Address)]))
    given = [each.touched(next(nbytes)) if isinstance(each, Address) else _number(each) for each in arguments]
    return tirx.Evaluate(tirx.call_extern("int32", name, *given))


def call_kernel(
    name: str,
    kernel: Kernel,
    data: Sequence[Address],
    weights: Sequence[Any],
    sums: Address | Sequence[Address],
    ahead: Address | None = None,
    steps: Any = None,
) -> Any:
    """A call of the function of that name of a kernel.

    `weights` is the address of a panel, and what its kind has behind it, as pointers.  `sums` has an address for each
    row if they are apart.  `ahead` is where the kernel
    prefetches, `steps` their number if it is counted.
    """
    counted = kernel if steps is None else kernel._replace(steps=steps)
    pointers = [each.touched(counted.row_bytes) for each in data]
    pointers += [each.touched(counted.panel_bytes) if isinstance(each, Address) else each for each in weights]
    pointers += [each.touched(kernel.sums_bytes) for each in ([sums] if isinstance(sums, Address) else sums)]
    further = [ahead.touched(0)] if ahead is not None else []
    numbers = [_number(steps)] if steps is not None else []
    return tirx.Evaluate(tirx.call_extern("int32", name, *pointers, *further, *numbers))


def _number(value: Any) -> Any:
    return tirx.const(value, "int32") if isinstance(value, int) else tirx.Cast("int32", value)


def odd_lines(values: int, line: int) -> int:
    """The least number of values, at least `values`, that fills an odd number of cache lines of `line` values each.

    Rows of this length begin in different sets of the cache.
    """
    lines = -(-values // line)
    return (lines + (lines + 1) % 2) * line
