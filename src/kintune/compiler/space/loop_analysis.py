"""Loop analysis: the loops and memory accesses of a workload's core block, read from its program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tvm
from tvm.sym import detect_linear_equation

from kintune.compiler.space.weights import LAYOUT_FREE_OPERANDS, weight_positions
from kintune.compiler.tir import nodes_in, plain_schedule
from kintune.core.candidate import Sketch
from kintune.core.dtypes import numpy_dtype
from kintune.search.access_patterns import AccessPatterns, OperandAccess

__all__ = ["access_patterns", "tiled_block"]

_TILED = "meta_schedule.tiling_structure"


def tiled_block(sketch: Sketch) -> str | None:
    """The name of the block that the sketch tiles at several levels; None when it tiles no block so."""
    blocks: dict[str, str] = {}
    for kind, inputs, attributes, outputs in json.loads(sketch.trace)["insts"]:
        if kind == "GetSBlock":
            blocks[str(outputs[0])] = str(attributes[0])
        elif kind == "Annotate" and attributes[0] == _TILED:
            return blocks.get(str(inputs[0]))
    return None


def access_patterns(module: tvm.IRModule, block: str) -> AccessPatterns | None:
    """The access patterns of a block of `module`'s function `main`; None when an operand is not of constant shape.

    Raises:
        ValueError: there is no such block.
    """
    schedule = plain_schedule(module)
    try:
        statement = schedule.get(schedule.get_sblock(block, func_name="main"))
    except Exception as error:  # of TVM's own kind
        raise ValueError(f"no block {block}") from error
    variables = [entry.var for entry in statement.iter_vars]
    weights = [*_weights(module), *(statement.annotations or {}).get(LAYOUT_FREE_OPERANDS, ())]
    try:
        extents = tuple(int(entry.dom.extent) for entry in statement.iter_vars)
        accesses = [_access(region, variables, extents, weights) for region in statement.reads]
        accesses += [_access(region, variables, extents, weights, written=True) for region in statement.writes]
    except TypeError:  # a shape that is only known when the program runs
        return None
    reduces = tuple(int(entry.iter_type) == tvm.tirx.IterVar.CommReduce for entry in statement.iter_vars)
    return AccessPatterns(block, extents, reduces, tuple(accesses))


def _access(
    region: Any, variables: Sequence[Any], extents: Sequence[int], weights: Sequence[Any], *, written: bool = False
) -> OperandAccess:
    buffer = region.source
    shape = tuple(int(extent) for extent in buffer.shape)
    steps = tuple(_steps(dimension.min, variables, extents) for dimension in region.region)
    return OperandAccess(
        shape=shape,
        steps=steps,
        width=max(1, numpy_dtype(str(buffer.dtype)).itemsize),
        written=written,
        weight=any(buffer.same_as(weight) for weight in weights),
    )


def _steps(index: Any, variables: Sequence[Any], extents: Sequence[int]) -> tuple[int, ...]:
    """The absolute change of the index for one step of each loop.

    Where the index is not linear, it is 1 for the loops that occur in it, and 0 for others.
    """
    found = detect_linear_equation(index, list(variables))
    if len(found) == len(variables) + 1:
        try:
            return tuple(abs(int(step)) for step in found[:-1])
        except TypeError:
            pass
    used = nodes_in(index, tvm.tirx.Var)
    return tuple(int(any(variable.same_as(each) for each in used)) for variable in variables)


def _weights(module: tvm.IRModule) -> list[Any]:
    """The parameters whose layout a schedule may choose."""
    function = module["main"]
    return [function.params[position] for position in sorted(weight_positions(function))]
