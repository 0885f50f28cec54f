"""Splits loops that wrap around: an index `i % c` of a loop over a multiple of `c` becomes a loop over `c` inside.

This is done for powers of two `c`.  With AVX-512, LLVM 22 vectorises the loop over `i` wrongly for these: it reads on
after the `c`-th element instead of starting again.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule

from kintune.compiler.programs.wrapping import moduli
from kintune.compiler.tir import SCHEDULED, without

__all__ = ["has_wrapped_loops", "split_wrapped_loops"]

_ROOT = "root"


def split_wrapped_loops(function: Any, _module: tvm.IRModule, _context: Any) -> Any:
    """Return a function that is not scheduled yet with such loops split; as it is, where it has none."""
    if not has_wrapped_loops(function):
        return function
    attributes = function.attrs or {}
    kept = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = Schedule(kept)  # `kept` has to live on: a schedule changes a module that nobody else holds in place
    for block in schedule.get_child_blocks(schedule.get_sblock(_ROOT, func_name="main")):
        _split(schedule, block)
    changed = schedule.mod["main"]
    name = attributes.get("global_symbol")
    return without(changed, "global_symbol") if name is None else changed.with_attr("global_symbol", name)


def has_wrapped_loops(function: Any) -> bool:
    """Return whether a function may have loops to split: unscheduled, with a variable modulo a power of two."""
    if not isinstance(function, tirx.PrimFunc) or SCHEDULED in (function.attrs or {}):
        return False
    root = getattr(getattr(function.body, "block", None), "name_hint", "")
    return root == _ROOT and bool(moduli(function.body))


def _split(schedule: Any, block: Any) -> None:
    body = schedule.get(block)
    loops = schedule.get_loops(block)
    wrapped = moduli(body.body)
    if len(loops) != len(body.iter_vars):
        return
    for loop, variable in zip(loops, body.iter_vars, strict=True):
        modulus = max((value for taken, value in wrapped if taken.same_as(variable.var)), default=0)
        extent, kind = schedule.get(loop).extent, schedule.get(loop).kind
        if not modulus or kind != tirx.ForKind.SERIAL:  # a parallel one would lose its threads
            continue
        if isinstance(extent, tirx.IntImm) and extent.value > modulus and extent.value % modulus == 0:
            schedule.split(loop, [None, modulus])
