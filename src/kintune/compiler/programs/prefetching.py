"""Statements that prefetch data: weights come from memory while products are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES

__all__ = ["LINE_VALUES", "ask_for"]

LINE_VALUES = LINE_BYTES // WORD_BYTES
"""Values of fp32 in a cache line."""

_READ, _NEAR, _DATA = 0, 2, 1
"""The operands of a prefetch: for reading, into the second cache, of data."""


def ask_for(buffer: Any, indices: Sequence[Any]) -> Any:
    """The statement that prefetches the cache line of an element; outside of mapped memory it does nothing."""
    address = tirx.address_of(buffer[tuple(indices)])
    operands = (tirx.const(number, "int32") for number in (_READ, _NEAR, _DATA))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *operands))
