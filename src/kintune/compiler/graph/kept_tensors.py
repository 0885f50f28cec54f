"""Keeps tensors between kernels in bf16 where kernels that read them compute in bf16.

A network with some kernels in bf16 still has fp32 tensors between them.  A tensor is kept in bf16 if the kernel that
writes it and all that read it support that, and a kernel in bf16 reads it, or reads a tensor that is computed from it
through other kept tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.rewriting import (
    CALL_KERNEL,
    bindings_of,
    operator_of,
    static_shape,
    variables_in,
    with_main,
)
from kintune.compiler.programs.kept_parameters import BF16_TYPE

__all__ = ["Keepable", "KeptTensors", "keep_tensors"]

_WIDE = "float32"


class Keepable(NamedTuple):
    """Which parameters of a function may be bf16, and how the function is made with some of them in bf16.

    `positions` are those of the parameters that may be; `write` returns the function in which those of the given
    positions are.  A function that `is_narrow` computes in bf16.  A function that `passes` is a reshape: its result is
    bf16 if its operand is.  `rounded` are the positions of operands that the function rounds to bf16 in any case.
    """

    positions: frozenset[int]
    write: Callable[[frozenset[int]], tvm.tirx.PrimFunc]
    is_narrow: bool = False
    passes: bool = False
    rounded: frozenset[int] = frozenset()


class KeptTensors(NamedTuple):
    """A network, and how many of its tensors are kept in bf16."""

    module: tvm.IRModule
    number: int


class _Call(NamedTuple):
    """A call of a function with one result: its key, the function's name, the operands and the variable of the result.

    A result of several tensors, or an operand that is no variable, is None.
    """

    key: int
    name: str
    operands: tuple[relax.Var | None, ...]
    result: relax.Var | None


def keep_tensors(module: tvm.IRModule, keepable: Mapping[str, Keepable], *, exact: bool) -> KeptTensors:
    """Keep all tensors in bf16 that can be; with `exact`, only those that all their readers round to bf16 anyway.

    `keepable` describes functions by their names in `module`; others are called with fp32.

    Versions of the functions with parameters in bf16 are added.  Parameters and results of `main` do not change.
    """
    calls, fixed = _read(module["main"])
    kept = _kept(calls, fixed, keepable, exact)
    changes = {call.key: positions for call in calls if (positions := _positions(call, kept))}
    if not changes:
        return KeptTensors(module, 0)
    return KeptTensors(with_main(module, _Rewriter(module, changes, keepable)), len(kept))


def _read(main: relax.Function) -> tuple[list[_Call], set[relax.Var]]:
    """The calls of kernels, and the variables whose type must not change."""
    calls: list[_Call] = []
    fixed = {*main.params, *variables_in(main.body.body)}
    for binding in bindings_of(main):
        value = binding.value
        is_call = operator_of(value) == CALL_KERNEL and isinstance(value.args[1], relax.Tuple)
        if not isinstance(binding, relax.VarBinding) or not is_call or len(value.args) > 2:
            fixed.update((binding.var, *variables_in(value)))
            continue
        fields = tuple(field if isinstance(field, relax.Var) else None for field in value.args[1].fields)
        result = binding.var if isinstance(binding.var.ty, relax.TensorType) else None
        calls.append(_Call(_key(value), str(value.args[0].name_hint), fields, result))
    return calls, fixed


def _kept(
    calls: Collection[_Call], fixed: Collection[relax.Var], keepable: Mapping[str, Keepable], exact: bool
) -> frozenset[relax.Var]:
    """The tensors to keep in bf16; a tensor and its reshapes are kept together or not at all."""
    groups: dict[relax.Var, list[relax.Var]] = {call.result: [call.result] for call in calls if call.result is not None}
    for call in calls:
        if _passes(call, keepable) and call.operands[0] in groups and call.result is not None:
            merged = [*groups[call.operands[0]], *groups[call.result]]
            groups.update(dict.fromkeys(merged, merged))
    refused = set(fixed)
    narrow: set[relax.Var] = set()
    for call in calls:
        known = keepable.get(call.name)
        if _passes(call, keepable) and call.operands[0] not in groups and call.result is not None:
            refused.add(call.result)
        for position, variable in enumerate((*call.operands, call.result)):
            if variable is None:
                continue
            if str(variable.ty.dtype) != _WIDE or not static_shape(variable):
                refused.add(variable)
            if known is None or not (known.passes or position in known.positions):
                refused.add(variable)
            elif position < len(call.operands) and not known.passes:
                if exact and position not in known.rounded:
                    refused.add(variable)
                if known.is_narrow:
                    narrow.add(variable)
    kept = {variable for group in groups.values() if refused.isdisjoint(group) for variable in group}
    while unused := _unused(calls, kept, narrow, groups):
        kept -= unused
    return frozenset(kept)


def _unused(
    calls: Collection[_Call],
    kept: Collection[relax.Var],
    narrow: Collection[relax.Var],
    groups: Mapping[relax.Var, Collection[relax.Var]],
) -> set[relax.Var]:
    """The kept tensors that are read neither by a kernel in bf16 nor by a call whose result is a kept tensor."""
    used = set(narrow)
    for call in calls:
        if call.result in kept:
            own = groups[call.result]
            used.update(each for each in call.operands if each is not None and each not in own)
    return {variable for variable in kept if used.isdisjoint(groups[variable])}


def _passes(call: _Call, keepable: Mapping[str, Keepable]) -> bool:
    known = keepable.get(call.name)
    return known is not None and known.passes and len(call.operands) == 1


def _positions(call: _Call, kept: Collection[relax.Var]) -> frozenset[int]:
    """The positions of the parameters of the call that are kept."""
    return frozenset(at for at, each in enumerate((*call.operands, call.result)) if each is not None and each in kept)


def _key(expression: relax.Expr) -> int:
    return int(expression.__chandle__())


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Replaces the called functions; `changes` has, by the key of a call, the positions of its bf16 parameters."""

    def __init__(
        self, module: tvm.IRModule, changes: Mapping[int, frozenset[int]], keepable: Mapping[str, Keepable]
    ) -> None:
        super().__init__(module)
        self._changes = changes
        self._keepable = keepable
        self._made: dict[tuple[str, frozenset[int]], tvm.ir.GlobalVar] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        positions = self._changes.get(_key(call))
        if positions is None:
            return super().visit_call_(call)
        (result,) = call.ty_args
        if len(call.args[1].fields) in positions:
            result = relax.TensorType(result.shape, BF16_TYPE)
        function = self._function(str(call.args[0].name_hint), positions)
        operands = relax.Tuple([self.visit_expr(field) for field in call.args[1].fields])
        return relax.Call(call.op, [function, operands], call.attrs, [result], call.span)

    def _function(self, name: str, positions: frozenset[int]) -> tvm.ir.GlobalVar:
        key = name, positions
        if key not in self._made:
            made = self._keepable[name].write(positions)
            self._made[key] = self.builder_.add_func(made, f"{name}_bf16_{'_'.join(map(str, sorted(positions)))}")
        return self._made[key]
