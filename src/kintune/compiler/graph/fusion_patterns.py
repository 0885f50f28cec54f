"""Corrects the fusion patterns that TVM's own analysis gives to functions.

Padding or cutting the end of a tensor reads each element at its own index, so the analysis classifies it as
element-wise.  As the epilogue of a convolution, it would not write the elements beyond the convolution's own result.
So it is marked injective.

Repeating elements along an axis reads its operand like broadcasting, so it is marked broadcast.  Feature pyramids
enlarge a map in this way and add it to the result of a convolution, whose epilogue then reads the small map.
"""

from __future__ import annotations

import tvm

from kintune.compiler.graph.rewriting import kernels_pass
from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.tir import PATTERN, Fusion, is_number, nodes_in, plain_schedule

__all__ = ["InlineRepeats", "RepeatsBroadcast", "ResizedInjective"]

_BLOCK = "T_repeat"


def ResizedInjective() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that marks functions injective if an operand neither has the result's shape nor is broadcast to it."""

    def mark(_name: str, function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc | None:
        pattern = int((function.attrs or {}).get(PATTERN, Fusion.INJECTIVE))
        wrong = pattern < Fusion.INJECTIVE and _resizes(function)
        return function.with_attr(PATTERN, Fusion.INJECTIVE) if wrong else None

    return kernels_pass("ResizedInjective", mark)


def _resizes(function: tvm.tirx.PrimFunc) -> bool:
    shapes = [list(p.shape) for p in function.params if hasattr(p, "shape")]
    if not shapes or any(not isinstance(extent, tvm.tirx.IntImm) for shape in shapes for extent in shape):
        return False
    *operands, result = [[int(extent) for extent in shape] for shape in shapes]
    single: list[tuple[int, int]] = []  # operands, and their axes of one element where the result has more
    for number, shape in enumerate(operands):
        for place, (extent, wanted) in enumerate(zip(reversed(shape), reversed(result), strict=False), 1):
            if extent not in (1, wanted):
                return True
            if extent != wanted:
                single.append((number, len(shape) - place))
    return bool(single) and _reads_beyond(function, single)


def _reads_beyond(function: tvm.tirx.PrimFunc, single: list[tuple[int, int]]) -> bool:
    """Whether one of these axes of one element, given as (operand, axis), is read at an index other than 0.

    A broadcast reads it at 0; padding reads it at the index at which the result is written, under a condition.
    """
    variables = [each for block in nodes_in(function.body, tvm.s_tir.SBlock) for each in block.iter_vars]
    longer = {each.var for each in variables if not is_number(each.dom.extent, 1)}
    buffers = [p for p in function.params if hasattr(p, "shape")]
    loads = loads_in(function.body)
    return any(
        load.source.same_as(buffers[number]) and load.indices[axis] in longer
        for load in loads
        for number, axis in single
    )


def RepeatsBroadcast() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that marks repetitions as broadcasts, so that they may be fused, also into epilogues of convolutions."""

    def mark(name: str, function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc | None:
        pattern = int((function.attrs or {}).get(PATTERN, -1)) if name.startswith("repeat") else -1
        return function.with_attr(PATTERN, Fusion.BROADCAST) if pattern == Fusion.INJECTIVE else None

    return kernels_pass("RepeatsBroadcast", mark)


def InlineRepeats() -> tvm.transform.Pass:  # noqa: N802
    """A pass that inlines the blocks of repetitions in fused functions: readers read the repeated tensor instead."""

    def inlined(name: str, function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc | None:
        return _without_repeats(function) if "_repeat" in name else None

    return kernels_pass("InlineRepeats", inlined)


def _without_repeats(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    schedule = plain_schedule(function)
    root = schedule.get_sblock("root", func_name="main")
    results = {schedule.get(block).name_hint for block in schedule.get_output_blocks(root)}
    for block in schedule.get_child_blocks(root):
        name = schedule.get(block).name_hint
        if name.startswith(_BLOCK) and name not in results:
            schedule.compute_inline(block)
    return schedule.mod["main"]
