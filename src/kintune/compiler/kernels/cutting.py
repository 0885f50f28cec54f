"""Cuts a function in two where blocks with sums of their own compute the data of its last sum, and joins it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.blocks import loads_in, nests_of
from kintune.compiler.kernels.loops import as_root, sequence
from kintune.compiler.space.weights import LAYOUT_FREE, weight_positions

__all__ = ["Cut", "cut", "has_prologue", "restored"]

_SUMS = 2  # at least, where one is in a prologue


class Cut(NamedTuple):
    """The blocks of a function without those that compute the data of its last sum, and those.

    Both functions have the data as another parameter, the last one.
    """

    rest: tvm.tirx.PrimFunc
    prologue: tvm.tirx.PrimFunc


def cut(function: tvm.tirx.PrimFunc) -> Cut | None:
    """The function cut in two; None where no blocks with sums of their own compute the data of its last sum alone."""
    nests = nests_of(function)
    sums = [at for at, nest in enumerate(nests or ()) if nest.block.init is not None]
    if nests is None or len(sums) < _SUMS:
        return None
    last = nests[sums[-1]].block
    sources = dict.fromkeys(load.source for load in loads_in(last.body))
    computed = [each for each in sources if not _is_among(each, [*function.params, last.body.buffer])]
    if len(computed) != 1:
        return None
    (data,), inside, read = computed, list[int](), list(computed)
    for at in reversed(range(sums[-1])):
        if _is_among(nests[at].block.body.buffer, read):
            inside.insert(0, at)
            read += [load.source for load in loads_in(nests[at].block)]
    made = [nests[at].block.body.buffer for at in inside]
    outside = [at for at in range(len(nests)) if at not in inside]
    readers = [at for at in outside if any(_is_among(load.source, made) for load in loads_in(nests[at].block))]
    if readers != [sums[-1]] or not set(inside).intersection(sums):
        return None

    def part(chosen: Sequence[int]) -> tvm.tirx.PrimFunc:
        own = [each for each in function.body.block.alloc_buffers if _is_among(each, made) == (chosen is inside)]
        body = as_root(sequence([nests[at].statement for at in chosen]), [b for b in own if not b.same_as(data)])
        return tvm.tirx.PrimFunc([*function.params, data], body, function.ret_type, function.attrs)

    return Cut(part(outside), part(inside))


def has_prologue(function: tvm.tirx.PrimFunc) -> bool:
    """Whether blocks with sums of their own compute the data of a function's last sum."""
    return cut(function) is not None


def restored(module: tvm.IRModule, prologue: tvm.tirx.PrimFunc | None) -> tvm.IRModule:
    """A program that was written for the rest of a function, as one for the whole, if that has a prologue.

    Schedules may no longer choose the layout of what the prologue reads.
    """
    function = module["main"]
    if prologue is None:
        return module
    read = [load.source for load in loads_in(prologue.body)]
    free = [at for at in sorted(weight_positions(function)) if not _is_among(prologue.params[at], read)]
    made = tvm.tirx.PrimFunc(list(function.params)[:-1], function.body, function.ret_type, function.attrs)
    return tvm.IRModule({"main": made.with_attr(LAYOUT_FREE, free)}, attrs=module.attrs)


def _is_among(buffer: Any, others: Sequence[Any]) -> bool:
    return any(buffer.same_as(each) for each in others)
