"""Puts the statements of a program in the place of the sum that they compute, and of what belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.loops import sequence
from kintune.compiler.kernels.statements import block_over
from kintune.compiler.space.weights import LAYOUT_FREE, weight_positions

__all__ = ["Stages", "computing_block", "with_stages"]


class Stages(NamedTuple):
    """The statements in order, and the buffers that they need between them."""

    statements: list[Any]
    buffers: list[Any]


def computing_block(
    name: str,
    found: Contraction,
    epilogue: Epilogue | None,
    loops: Sequence[tuple[str, int]],
    body: Callable[..., Any],
    *,
    weights: Any,
    buffers: Sequence[Any],
    again: bool = False,
) -> Any:
    """The block that computes a sum in two loops, which become one parallel loop, and what follows from it.

    It reads the data, the `weights`, what the epilogue reads and, with `again`, what it has written.  `buffers` are
    allocated in it.
    """
    others = [] if epilogue is None else epilogue.operands
    target = found.result if epilogue is None else epilogue.target
    reads = [found.data, weights, *others, *([target] if again else [])]
    return block_over(name, loops, body, reads, [target], fused=True, buffers=buffers)


def with_stages(module: tvm.IRModule, found: Contraction, stages: Stages, epilogue: Epilogue | None) -> tvm.IRModule:
    """The module with the stages in the place of the sum and of the epilogue, if there is one.

    Schedules may no longer choose the layout of the sum's weights, nor of those that the epilogue reads.
    """
    function = module["main"]
    root = function.body.block
    nests = list(found.nests)
    at = last = found.replaced[-1]
    gone = [nests[i].block.body.buffer for i in found.replaced if i != at]
    if epilogue is not None:
        gone.append(found.result)
        last = next(i for i, nest in enumerate(nests) if nest.block.body.buffer.same_as(epilogue.target))
    replaced = {*found.replaced, last}
    before = [nest.statement for i, nest in enumerate(nests) if i < last and i not in replaced]
    after = [nest.statement for i, nest in enumerate(nests) if i > last]
    buffers = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(each) for each in gone)]
    body = sequence([*before, *stages.statements, *after])
    block = SBlock([], [], [], root.name_hint, body, None, [*buffers, *stages.buffers], [], root.annotations)
    changed = function.with_body(SBlockRealize([], True, block))
    read = [] if epilogue is None else epilogue.operands
    free = [
        position
        for position in sorted(weight_positions(function).difference(found.parameters))
        if not any(function.params[position].same_as(buffer) for buffer in read)
    ]
    changed = changed.with_attr(LAYOUT_FREE, free) if free else changed.without_attr(LAYOUT_FREE)
    return tvm.IRModule({"main": changed}, attrs=module.attrs)
