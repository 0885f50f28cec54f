"""Variants of programs that are written for lanes of a vector and vector registers, as in "16x32"."""

from __future__ import annotations

import tvm

from kintune.errors import BuildError
from kintune.runtime.target import capabilities

__all__ = ["lanes_and_registers", "vector_variant"]

_REGISTERS = (16, 32)


def vector_variant(target: tvm.target.Target) -> str:
    """The variant for a CPU; empty where the registers are neither 16 nor 32."""
    can = capabilities(target)
    return f"{can.lanes}x{can.registers}" if can.registers in _REGISTERS else ""


def lanes_and_registers(variant: str, what: str) -> tuple[int, int]:
    """The lanes of a vector and the number of registers of a variant; `what` names the programs in the message.

    Raises:
        BuildError: there is no such variant.
    """
    lanes, _, registers = variant.partition("x")
    if not (lanes.isdecimal() and registers.isdecimal() and int(lanes) and int(registers) in _REGISTERS):
        raise BuildError(f"{what} have no variant {variant}")
    return int(lanes), int(registers)
