"""The statements of one pass over a row, and how far apart the elements lie that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from kintune.compiler.programs.loops import index, replaced
from kintune.compiler.programs.row_passes import Pass

__all__ = ["stores", "strides_of", "written"]


def written(each: Pass, values: dict[Any, Any]) -> tuple[list[Any], Any]:
    """The statements that bind what a pass needs, and its value.

    `values` replace variables; those that the pass binds are new ones, so that it may be written several times.  A
    binding without a variable is a statement.
    """
    known = dict(values)
    statements: list[Any] = []
    for binding in each.bindings:
        found = replaced(binding.value, known)
        if binding.variable is None:
            statements.append(found)
            continue
        known[binding.variable] = made = tirx.Var(str(binding.variable.name), binding.variable.ty)
        statements.append(tirx.Bind(made, found))
    return statements, replaced(each.value, known)


def stores(each: Pass, value: Any, values: dict[Any, Any]) -> list[Any]:
    """The statement that stores the value of a pass, if it stores one; `values` replace variables in its indices."""
    if each.target is None:
        return []
    return [tirx.BufferStore(each.target, value, [replaced(at, values) for at in each.indices])]


def strides_of(each: Pass, variables: Sequence[Any]) -> list[list[int]] | None:
    """How many elements lie between neighbours along each variable in what a pass reads and writes.

    None where that is not the same everywhere, or a variable is used for something else than indices.
    """
    values = [*(binding.value for binding in each.bindings), each.value]
    if any(_used_bare(value, variables) for value in values):
        return None
    accesses = [(load.source, load.indices) for value in values for load in _loads(value)]
    if each.target is not None:
        accesses.append((each.target, each.indices))
    found = []
    for source, indices in accesses:
        offset: Any = index(0)
        for extent, at in zip(source.shape, indices, strict=True):
            offset = offset * extent + at
        linear = tvm.sym.detect_linear_equation(offset, list(variables))
        if len(linear) != len(variables) + 1:
            return None
        steps = [tvm.sym.Analyzer().simplify(step) for step in linear[:-1]]
        if any(not isinstance(step, tirx.IntImm) for step in steps):
            return None
        found.append([int(step.value) for step in steps])
    return found


def _loads(value: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(value, [(tvm.ir.TensorLoad, found.append)])
    return found


def _used_bare(value: Any, variables: Sequence[Any]) -> bool:
    """Whether one of the variables is used outside of indices."""
    found: list[Any] = []

    def skip(_load: Any) -> Any:
        return tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(
        value, [(tvm.ir.TensorLoad, skip), (tirx.Var, found.append)], order=tvm_ffi.WalkOrder.PREORDER
    )
    return any(one.same_as(variable) for one in found for variable in variables)
