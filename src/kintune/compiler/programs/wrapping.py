"""Loops whose variable is taken modulo a power of two.

With AVX-512, LLVM 22 vectorises such a loop wrongly: where the index `i % c` starts again at 0, it reads on after the
`c`-th element.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from kintune.compiler.kernels.loops import index, loop, replaced
from kintune.compiler.tir import nodes_in

__all__ = ["moduli", "without_wrapping"]


def moduli(statement: Any) -> list[tuple[Any, int]]:
    """The variables that are taken modulo a power of two, and the powers."""
    taken = [each for each in nodes_in(statement, tirx.FloorMod) if isinstance(each.a, tirx.Var)]
    found = [(each.a, int(each.b.value)) for each in taken if isinstance(each.b, tirx.IntImm)]
    return [(variable, value) for variable, value in found if value > 1 and value & (value - 1) == 0]


def without_wrapping(statement: Any) -> Any:
    """A statement in which each serial loop over a multiple of such a power is two loops, the inner one over the power.

    The index is then the inner variable, which does not start again within its loop.
    """

    def split(found: Any) -> Any:
        power = max((power for taken, power in moduli(found.body) if taken.same_as(found.loop_var)), default=0)
        extent = found.extent
        if not power or found.kind != tirx.ForKind.SERIAL or not isinstance(extent, tirx.IntImm):
            return found
        whole, rest = divmod(int(extent.value), power)
        if rest or whole == 1:
            return found
        name, variable = str(found.loop_var.name), found.loop_var

        def of_part(part: Any) -> Any:
            return loop(name, power, lambda at: replaced(found.body, {variable: part * index(power) + at}))

        return loop(f"{name}_part", whole, of_part)

    return tvm_ffi.structural_map(statement, [(tirx.For, split)])
