"""The statements of one pass over a row, and how far apart the elements lie that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

from kintune.compiler.hidden_values import bindable
from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.kernels.loops import buffer, index, replaced
from kintune.compiler.programs.row_passes import CHANGING, Pass
from kintune.compiler.tir import called, names_called, nodes_in

__all__ = ["Written", "calls_functions", "lane_loop", "stores", "strides_of", "written"]


_CHOICE = "prim.if_then_else"
_OF_VECTORS = frozenset({_CHOICE, "tirx.reinterpret"})
"""Calls that TVM vectorises although their operators have no attribute that says so."""


class Written(NamedTuple):
    """The statements that bind what a pass needs, its value in terms of these, and the buffers that they use."""

    buffers: list[Any]
    statements: list[Any]
    value: Any


def written(each: Pass, values: dict[Any, Any], lane: Any = None, lanes: int = 1) -> Written:
    """A pass as statements; `values` replace variables.

    Values that call functions, or are computed from those of a type such as bfloat16, are kept in buffers, with one
    element for each of the `lanes`: the compiler cannot bind a variable to what these become, and takes the bits of
    bfloat16 for an integer.  All variables are new ones, so that a pass may be written several times.
    A binding without a variable is a statement.
    """
    at = [index(0) if lane is None else lane]
    known = dict(values)
    found = Written([], [], None)
    for binding in each.bindings:
        value = replaced(binding.value, known)
        if binding.variable is None:
            found.statements.append(value)
            continue
        name = str(binding.variable.name)
        if calls_functions(value) or _widens(value):
            found.buffers.append(made := buffer(name, (lanes,), str(value.ty)))
            found.statements.append(tirx.BufferStore(made, value, at))
            known[binding.variable] = tirx.BufferLoad(made, at)
        else:
            known[binding.variable] = variable = tirx.Var(name, binding.variable.ty)
            found.statements.append(tirx.Bind(variable, bindable(value)))
    return found._replace(value=replaced(each.value, known))


def calls_functions(value: Any) -> bool:
    """Whether a value has a call of anything but the compiler's `if_then_else`."""
    return bool(names_called(value) - {_CHOICE})


def _widens(value: Any) -> bool:
    """Whether a value is computed from one of a type that is computed in another one."""
    return any(str(cast.value.ty).startswith(CHANGING) for cast in nodes_in(value, tirx.Cast))


def lane_loop(each: Pass) -> Any:
    """The kind of a loop over the lanes of a pass: vectorised, but for truth values, of which TVM makes no vectors.

    It is serial as well where a called function takes scalars only, which cannot use what is bound to vectors, and
    where an `if_then_else` depends on elements: TVM computes that lane by lane, and binds the value of the last lane.
    """
    kinds = [str(binding.value.ty) for binding in each.bindings if binding.variable is not None]
    kinds += [str(load.source.dtype) for value in _values(each) for load in loads_in(value)]
    calls = [call for value in _values(each) for call in nodes_in(value, tvm.ir.Call)]
    together = "bool" not in kinds and all(map(_takes_vectors, calls)) and not _chooses_by_element(each)
    return tirx.ForKind.VECTORIZED if together else tirx.ForKind.SERIAL


def _takes_vectors(call: Any) -> bool:
    return called(call) in _OF_VECTORS or bool(call.op.get_attr("TVectorizable"))


def _chooses_by_element(each: Pass) -> bool:
    """Whether a condition of an `if_then_else` depends on elements of tensors, or on values bound before."""
    bound = [binding.variable for binding in each.bindings if binding.variable is not None]
    return any(loads_in(condition) or _used_bare(condition, bound) for condition in _conditions(each))


def _conditions(each: Pass) -> list[Any]:
    calls = [call for value in _values(each) for call in nodes_in(value, tvm.ir.Call)]
    return [call.args[0] for call in calls if called(call) == _CHOICE]


def stores(each: Pass, value: Any, values: dict[Any, Any]) -> list[Any]:
    """The statement that stores the value of a pass, if it stores one; `values` replace variables in its indices."""
    if each.target is None:
        return []
    return [tirx.BufferStore(each.target, value, [replaced(at, values) for at in each.indices])]


def strides_of(each: Pass, variables: Sequence[Any], *, bare: bool = False) -> list[list[int]] | None:
    """How many elements lie between neighbours along each variable in what a pass reads and writes.

    None where that is not the same everywhere, or a variable is used for something else than indices.  With `bare`, it
    may be used for anything but the condition of an `if_then_else`; see `lane_loop`.
    """
    values = _values(each)
    if any(_used_bare(value, variables) for value in (_conditions(each) if bare else values)):
        return None
    accesses = [(load.source, load.indices) for value in values for load in loads_in(value)]
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


def _values(each: Pass) -> list[Any]:
    return [*(binding.value for binding in each.bindings), each.value]


def _used_bare(value: Any, variables: Sequence[Any]) -> bool:
    """Whether one of the variables is used outside of indices."""
    found: list[Any] = []

    def skip(_load: Any) -> Any:
        return tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(
        value, [(tvm.ir.TensorLoad, skip), (tirx.Var, found.append)], order=tvm_ffi.WalkOrder.PREORDER
    )
    return any(one.same_as(variable) for one in found for variable in variables)
