"""Puts a norm into the function of the product that alone reads it: the product computes rows of it as it reads them.

A task of the product computes its rows of the norm itself, and so do the tasks beside it, which have other columns.  So
a norm that several products read stays a kernel.  So does one whose product in floats takes long, since there a kernel
less makes no difference that can be measured (`benchmarks/prologues.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from kintune.compiler.graph.norm_rules import NORM
from kintune.compiler.graph.rewriting import CALL_KERNEL, Rewriter, operator_of, pass_of, static_shape
from kintune.compiler.kernels.contraction import multiplies_rows
from kintune.compiler.programs.row_passes import read_rows
from kintune.compiler.programs.rows import row_statement

__all__ = ["FusePrologues"]

_MOST_ROWS = 16
_MOST_WEIGHTS = 1 << 18  # of a product in floats that takes short enough; those of few bits gain whatever they take
_LEAST_COLUMNS, _LEAST_WEIGHTS = 16, 4096  # of a product that is worth a kernel of its own


class _FusePrologues(Rewriter):
    """A pass, behind TVM's `FuseOps`, that makes one function of a norm and the product that reads it."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._norms: dict[relax.Var, relax.Var] = {}  # the variable of a product, and that of the norm which it reads

    def learn(self, block: relax.DataflowBlock) -> None:
        """Find the products and norms."""
        super().learn(block)
        for binding in block.bindings:
            data = self._data(binding.value)
            if data is not None and self._bindings.is_inner(data) and self._is_norm(data):
                self._norms[binding.var] = data

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if any(binding.var.same_as(norm) for norm in self._norms.values()):
            return
        norm = self._norms.get(binding.var)
        if norm is not None:
            binding = relax.VarBinding(binding.var, self._fused(norm, binding.value))
        super().visit_var_binding_(binding)

    def _data(self, call: relax.Expr) -> relax.Var | None:
        """The data of a product, where the call is one, perhaps with what follows it, if a kernel has computed it."""
        operands, (first, *_) = _operands(call), self._calls(call) or [None]
        if first is None or not multiplies_rows(self._module[first.args[0]]):
            return None
        data, weights, *_ = first.args[1].fields
        function = self._function(call)
        if function is not None:
            given = dict(zip(function.params, operands, strict=True))
            data, weights = given.get(data, data), given.get(weights, weights)
        columns, depth = ((static_shape(each) or (0,))[-1] for each in (first, data))
        are_floats = isinstance(weights, tvm.ir.GenericConst) and str(weights.ty.dtype).startswith("float")
        most = _MOST_WEIGHTS if are_floats else math.inf
        is_worth = columns >= _LEAST_COLUMNS and _LEAST_WEIGHTS <= columns * depth <= most
        is_computed = isinstance(data, relax.DataflowVar) and data in self._bindings.values
        return data if is_worth and isinstance(weights, tvm.ir.GenericConst) and is_computed else None

    def _is_norm(self, variable: relax.Var) -> bool:
        """Whether a tensor is a norm of few rows, along its last axis, by a kernel that computes nothing else."""
        value, shape = self._bindings.value(variable), static_shape(variable)
        if operator_of(value) != CALL_KERNEL or shape is None or math.prod(shape[:-1]) > _MOST_ROWS:
            return False
        function = self._module[value.args[0]]
        if function.attrs is None or NORM not in function.attrs:
            return False
        rows = read_rows(function)
        return rows is not None and rows.column_extents == shape[-1:] and row_statement(rows) is not None

    def _function(self, call: relax.Expr) -> relax.Function | None:
        """The function of fused operators that is called."""
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.GlobalVar):
            return None
        found = self._module[call.op]
        return found if isinstance(found, relax.Function) else None

    def _calls(self, call: relax.Expr) -> list[relax.Call]:
        """The calls of kernels in a call, in order."""
        if operator_of(call) == CALL_KERNEL:
            return [call]
        function = self._function(call)
        values = [binding.value for block in function.body.blocks for binding in block.bindings] if function else []
        return [value for value in values if operator_of(value) == CALL_KERNEL]

    def _fused(self, norm: relax.Var, product: relax.Call) -> relax.Call:
        """A call of a new function that computes a norm and a product of it."""
        first = self._bindings.value(norm)
        operands = {_key(each): each for each in (*_operands(first), *_operands(product))}
        given = [each for key, each in operands.items() if key != _key(norm)]
        params = [relax.Var(f"p{number}", each.ty) for number, each in enumerate(given)]
        known: dict[int, Any] = {_key(each): parameter for each, parameter in zip(given, params, strict=True)}
        builder = relax.BlockBuilder()
        names = [str(each.args[0].name_hint) for each in (first, *self._calls(product))]
        with builder.function("main", params, attrs={"Primitive": 1}, private=True):
            with builder.dataflow():
                known[_key(norm)] = builder.emit(_with(first, known))
                output = builder.emit_output(self._inlined(builder, product, known))
            builder.emit_func_output(output)
        function = builder.get()["main"]
        return relax.Call(self.builder_.add_func(function, f"fused_{'_'.join(names)}"), given)

    def _inlined(self, builder: relax.BlockBuilder, call: relax.Call, known: dict[int, Any]) -> relax.Expr:
        """The value of a call, of whose function the operators are emitted one by one."""
        function = self._function(call)
        if function is None:
            return _with(call, known)
        given = zip(function.params, call.args, strict=True)
        inner = {_key(parameter): known[_key(operand)] for parameter, operand in given}
        for block in function.body.blocks:
            for binding in block.bindings:
                inner[_key(binding.var)] = builder.emit(_with(binding.value, inner))
        return inner[_key(function.body.body)]


FusePrologues = partial(pass_of, _FusePrologues)


def _key(expression: relax.Expr) -> int:
    """What tells expressions apart."""
    return int(expression.__chandle__())


def _operands(call: relax.Expr) -> Sequence[relax.Expr]:
    """The tensors that a call of a kernel or of a function reads."""
    if not isinstance(call, relax.Call):
        return ()
    return list(call.args[1].fields) if operator_of(call) == CALL_KERNEL else list(call.args)


def _with(call: relax.Call, known: dict[int, Any]) -> relax.Call:
    """A call of a kernel whose operands are replaced."""
    fields = [known[_key(each)] for each in call.args[1].fields]
    return relax.Call(call.op, [call.args[0], relax.Tuple(fields), *call.args[2:]], call.attrs, call.ty_args)
