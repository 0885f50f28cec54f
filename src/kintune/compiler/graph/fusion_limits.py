"""Decides for single calls how they may be fused, where TVM's patterns are not enough.

A function's pattern says how it may be fused, for all of its calls.  Here a call gets a copy of its function with
another pattern:

* A norm or softmax is fused with the element-wise operators that follow it; if none follows, with those before it.
* An operator that reads each element of its operand several times (enlarging with interpolation, and other enlarging
  after costly functions) is fused with those that follow it, and with none before it, which it would compute again for
  each read.
* An operator that reads each element of a sum of products of bytes several times, as a product with a gate does, is
  also fused only with those that follow it: no program for bytes computes a result that is larger than its sums.
* A copy of pieces of memory is fused with nothing, since the execution plan needs no kernel for it.  The same holds
  for a concatenation along the last axis, whose parts are computed in place, unless something element-wise follows it.
* A chain of operators ends where its expression would grow too large: schedules repeat the expression of an operand
  wherever it is used, and compiling a function of a function of a function takes many times longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.norm_rules import NORM
from kintune.compiler.graph.pieces import JOINS, SLICES, STRIDED_JOINS, least_strided, pieces_of
from kintune.compiler.graph.rewriting import CALL_KERNEL, Bindings, operator_of, static_shape, variables_in, with_main
from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.kernels.contraction import OF_BYTES, narrow_sums
from kintune.compiler.tir import PATTERN, Fusion, names_called, nodes_in
from kintune.core.dtypes import numpy_dtype
from kintune.models.interpolation import RESIZE

__all__ = ["LimitFusion"]

_COSTLY = frozenset(
    f"tirx.{name}" for name in ("erf", "exp", "log", "pow", "rsqrt", "sigmoid", "sqrt", "tanh", "cos", "sin")
)
_WEIGHTS = {"tirx.exp": 1, "tirx.erf": 1, "tirx.sigmoid": 1, "tirx.tanh": 2}
"""Functions that are lowered to arithmetic (see `lowering_rules`), and the depth that their expressions count for."""

_DEEPEST = 3
"""The most depth of a fused chain's expression, as the sum of `_WEIGHTS` along it."""

_LARGEST = 100
"""The most loads in a fused chain's expression."""


def LimitFusion() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that gives some calls of `main` a copy of their function with another fusion pattern."""

    def limit(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(variable.name_hint != "main" for variable in module.get_global_vars()):
            return module
        calls = _Calls(module)
        wanted = {variable: pattern for variable in calls.variables() if (pattern := calls.pattern(variable)) >= 0}
        if not wanted:
            return module
        return with_main(module, _Patterned(module, wanted))

    return tvm.transform.module_pass(limit, opt_level=0, name="LimitFusion")


class _Chain(NamedTuple):
    """The expression of a call after fusion with the operators before it.

    `depth` is how deep functions are nested in it (see `_WEIGHTS`), and `size` its number of loads.  With `ends`,
    nothing before the call may be fused with it, since one of these would become too large.
    """

    depth: int
    size: int = 1
    ends: bool = False


class _Calls(Bindings):
    """The kernel calls of `main`, by the variables that they are bound to."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__()
        self._module = module
        self._chains: dict[relax.Var, _Chain] = {}
        self._least_strided = least_strided(module["main"])
        self._results = set(variables_in(module["main"].body.body))
        for block in module["main"].body.blocks:
            self.learn(block)
        for variable in self.variables():
            self._chains[variable] = self._chain(variable)

    def variables(self) -> Iterator[relax.Var]:
        """The variables that are bound to kernel calls."""
        return (variable for variable in self.values if self._function(variable) is not None)

    def pattern(self, variable: relax.Var) -> int:
        """The pattern that the kernel of this variable should have in this call; -1 if its own is right."""
        function = self._function(variable)
        if function is None or function.attrs is None:
            return -1
        if self._chains[variable].ends:
            return Fusion.WITH_EPILOGUE
        if NORM in function.attrs:
            return Fusion.WITH_EPILOGUE if self._has_epilogue(variable) else Fusion.REDUCTION
        if pieces_of(function, SLICES):
            (operand,) = self._operands(variable)[:1]
            return Fusion.OPAQUE if self._anchor(operand) is not None else -1
        if pieces_of(function, JOINS):
            return Fusion.OPAQUE if self._is_mostly_computed(variable) else -1
        if pieces_of(function, STRIDED_JOINS):
            return Fusion.OPAQUE if self._is_put_in_place(variable) else -1
        known = _pattern_of(function)
        if known <= Fusion.BROADCAST and any(map(self._sums_bytes, self._enlarged(variable))):
            return Fusion.WITH_EPILOGUE
        alone = known == Fusion.INJECTIVE or (known == Fusion.BROADCAST and len(self._operands(variable)) == 1)
        return Fusion.WITH_EPILOGUE if alone and self._repeats_work(variable, function) else -1

    def _chain(self, variable: relax.Var) -> _Chain:
        """The chain that ends with a call; the chains of its operands must be known already."""
        function = self._function(variable)
        pattern = _pattern_of(function)
        own = max((_WEIGHTS[name] for name in names_called(function.body) & _WEIGHTS.keys()), default=0)
        if pattern > Fusion.REDUCTION:
            return _Chain(own)
        before = [
            None if self._only_reduces(operand) else self._chains.get(operand) for operand in self._operands(variable)
        ]
        read = self._loads(function)
        loads = [sum(source.same_as(parameter) for source in read) for parameter in function.params]
        sizes = [count * (chain.size if chain is not None else 1) for chain, count in zip(before, loads, strict=False)]
        depth = own + max((chain.depth for chain in before if chain is not None), default=0)
        if any(chain is not None for chain in before) and (depth > _DEEPEST or sum(sizes) > _LARGEST):
            return _Chain(own, ends=True)
        return _Chain(depth, max(sum(sizes), 1))

    @staticmethod
    def _loads(function: Any) -> list[Any]:
        """The parameters of a function that it loads from, once for each place."""
        read = (load.source for load in loads_in(function.body))
        return [each for each in read if any(each.same_as(parameter) for parameter in function.params)]

    def _only_reduces(self, operand: relax.Expr) -> bool:
        """Whether an operand is the result of a reduction, with which nothing that follows is fused."""
        function = self._function(operand)
        attributes = {} if function is None else function.attrs or {}
        return attributes.get(PATTERN) == Fusion.REDUCTION and NORM not in attributes

    def _function(self, variable: relax.Expr) -> Any:
        value = self.value(variable)
        if operator_of(value) != CALL_KERNEL:
            return None
        found = self._module[value.args[0]]
        return found if isinstance(found, tvm.tirx.PrimFunc) else None

    def _name(self, variable: relax.Expr) -> str:
        """The name of the kernel whose call a variable is bound to; "" for any other expression."""
        value = self.value(variable)
        return str(value.args[0].name_hint) if operator_of(value) == CALL_KERNEL else ""

    def _operands(self, variable: relax.Var) -> list[relax.Expr]:
        value = self.value(variable)
        return list(value.args[1].fields) if isinstance(value.args[1], relax.Tuple) else []

    def _has_epilogue(self, variable: relax.Var) -> bool:
        """Whether all readers of the result are element-wise kernels whose results have the same shape."""
        shape = static_shape(variable)

        def follows(reader: relax.Var) -> bool:
            function = self._function(reader)
            if function is None or static_shape(reader) != shape:
                return False
            return _pattern_of(function) <= Fusion.BROADCAST

        readers = [reader for reader in self.readers(variable) if reader is not None]
        return bool(readers) and variable not in self._results and all(map(follows, readers))

    def _sums_bytes(self, operand: relax.Expr) -> bool:
        """Whether a tensor is computed, element by element, from sums of products of bytes, and could be fused with."""
        anchor = self._anchor(operand)
        return anchor is not None and _pattern_of(anchor) < Fusion.OPAQUE and OF_BYTES in narrow_sums(anchor)

    def _anchor(self, operand: relax.Expr) -> Any:
        """The kernel that reduces, or is opaque, from which a tensor is computed along first operands; or None."""
        for _ in range(len(self.values)):
            value = self.value(operand)
            if isinstance(value, relax.TupleGetItem):
                operand = value.tuple_value
                continue
            function = self._function(operand)
            if function is None:
                return None
            if _pattern_of(function) >= Fusion.REDUCTION:
                return function
            operands = [each for each in self._operands(operand) if isinstance(each, relax.Var)]
            if not operands:
                return None
            operand = operands[0]
        return None

    def _is_mostly_computed(self, variable: relax.Var) -> bool:
        """Whether kernels compute at least half of the elements that are concatenated."""
        sizes = [0, 0]
        for operand in self._operands(variable):
            shape = static_shape(operand)
            made = isinstance(self.value(operand), relax.Call | relax.TupleGetItem)
            sizes[made] += math.prod(shape or (0,))
        return sizes[1] > 0 and sizes[1] >= sizes[0]

    def _is_put_in_place(self, variable: relax.Var) -> bool:
        """Whether a large tensor is concatenated that no element-wise operator reads.

        Then its parts may be computed in place (see `strided_pieces`).
        """
        size = math.prod(static_shape(variable) or (0,)) * numpy_dtype(str(variable.ty.dtype)).itemsize
        if size < self._least_strided or not self._is_mostly_computed(variable):
            return False
        readers = [self._function(reader) for reader in self.readers(variable) if reader is not None]
        return all(reader is not None and _pattern_of(reader) > Fusion.INJECTIVE for reader in readers)

    def _repeats_work(self, variable: relax.Var, function: Any) -> bool:
        """Whether fusion would compute elements of an operand several times, at a cost that matters."""
        interpolates = RESIZE in self._name(variable)
        several = interpolates and len(self._loads(function)) > 1
        if several and any(self._is_computed(operand) for operand in self._operands(variable)):
            return all(RESIZE not in self._name(operand) for operand in self._operands(variable))
        return any(map(self._is_costly, self._enlarged(variable)))

    def _enlarged(self, variable: relax.Var) -> list[relax.Expr]:
        """The operands of which a call reads each element twice or more: they have at most half of its elements."""
        size = math.prod(static_shape(variable) or (0,))
        operands = [operand for operand in self._operands(variable) if isinstance(operand, relax.Var)]
        return [operand for operand in operands if math.prod(static_shape(operand) or (0,)) * 2 <= size]

    def _is_computed(self, operand: relax.Expr) -> bool:
        """Whether the kernel that computes the operand would be fused into its reader, not into the one before it."""
        function = self._function(operand)
        pattern = _pattern_of(function)
        if pattern == Fusion.INJECTIVE and _only_moves(function):
            return any(map(self._is_computed, self._operands(operand)))
        return pattern <= Fusion.INJECTIVE and (pattern > Fusion.BROADCAST or self._anchor(operand) is None)

    def _is_costly(self, operand: relax.Expr, depth: int = 8) -> bool:
        """Whether the kernels that would be fused to compute the operand call costly functions."""
        if not depth or not self._is_computed(operand) or not isinstance(operand, relax.Var):
            return False
        if names_called(self._function(operand).body) & _COSTLY:
            return True
        return any(self._is_costly(each, depth - 1) for each in self._operands(operand))


@mutator
class _Patterned(PyExprMutator):  # type: ignore[misc]
    """Gives the calls of some variables a copy of their function with another pattern."""

    def __init__(self, module: tvm.IRModule, patterns: dict[relax.Var, int]) -> None:
        super().__init__(module)
        self._module = module
        self._patterns = patterns
        self._copies: dict[tuple[str, int], tvm.ir.GlobalVar] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        pattern = self._patterns.get(binding.var)
        if pattern is not None:
            call = binding.value
            key = str(call.args[0].name_hint), pattern
            if key not in self._copies:
                function = self._module[call.args[0]].with_attr(PATTERN, pattern)
                self._copies[key] = self.builder_.add_func(function, key[0])
            operands = [self._copies[key], *call.args[1:]]
            binding = relax.VarBinding(binding.var, relax.Call(call.op, operands, call.attrs, call.ty_args, call.span))
        super().visit_var_binding_(binding)


def _pattern_of(function: Any) -> int:
    """How a function may be fused, as a `Fusion`; something that is no kernel cannot be."""
    return int((getattr(function, "attrs", None) or {}).get(PATTERN, Fusion.OPAQUE))


def _only_moves(function: Any) -> bool:
    """Whether a function computes nothing, as transposes and reshapes do."""
    return all(isinstance(each.value, tvm.ir.TensorLoad) for each in nodes_in(function.body, tvm.tirx.BufferStore))
