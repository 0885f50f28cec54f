"""Lets kernels read and write parts of tensors along the last axis in place, instead of copies of them.

Parts of a tensor's channels, the last axis, are not contiguous in memory: each row has other channels between them.  By
default, kernels copy them out of one tensor or into another.  Here, the operands of a concatenation are computed in
place, and slices are read in place: functions that take parts take the whole tensor instead (see `placed_parameters`).
Where a function cannot, the part is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.keepable import COMPILED
from kintune.compiler.graph.pieces import JOINS, SLICES, STRIDED_JOINS, STRIDED_SLICES, least_strided, pieces_of
from kintune.compiler.graph.rewriting import bindings_of, operator_of, static_shape, with_main
from kintune.compiler.programs.placed_parameters import Place, copying, place, placeable
from kintune.compiler.tir import without
from kintune.core.dtypes import numpy_dtype

__all__ = ["PLACED", "PlaceStridedPieces"]

PLACED = "_in_place"
"""The suffix of the names of functions that take a larger tensor in place of a part."""

_ALLOCATE = "relax.builtin.alloc_tensor"


def PlaceStridedPieces() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that removes copies along the last axis from a network of kernel calls, after `CallTIRRewrite`."""

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        network = _Network(module)
        return with_main(module, _Rewriter(module, network)) if network.arrange() else module

    return tvm.transform.module_pass(rewrite, opt_level=0, name="PlaceStridedPieces")


@dataclass(eq=False)
class _Tensor:
    """A tensor that `main` allocates, or a parameter; `uses` are numbers of calls and positions among their arguments.

    If `whole` is given, it is a part of that tensor, from `offset` on along the last axis.  A `fixed` tensor cannot
    become a part.
    """

    variable: relax.Var
    shape: tuple[int, ...]
    dtype: str
    fixed: bool = False
    uses: list[tuple[int, int]] = field(default_factory=list)
    whole: _Tensor | None = None
    offset: int = 0

    @property
    def channels(self) -> int:
        """The extent of the last axis."""
        return self.shape[-1] if self.shape else 1

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    def root(self) -> _Tensor:
        """The tensor whose memory holds it: itself if it is no part."""
        return self if self.whole is None else self.whole.root()

    def place(self) -> Place:
        """Its place in the root: the root's extent and its offset along the last axis."""
        found, offset = self, 0
        while found.whole is not None:
            found, offset = found.whole, offset + found.offset
        return Place(found.channels, offset)


class _Call(NamedTuple):
    """A call of a function; an argument that is no known tensor is None.

    `joins` or `slices` are the offsets of the parts, if the function concatenates or slices along the last axis.
    """

    name: str
    tensors: tuple[_Tensor | None, ...]
    joins: tuple[int, ...]
    slices: tuple[int, ...]

    @property
    def whole(self) -> _Tensor | None:
        """The result of a concatenation, or the operand of slices."""
        return self.tensors[-1] if self.joins else self.tensors[0]

    @property
    def parts(self) -> tuple[_Tensor | None, ...]:
        """The operands of a concatenation, or the results of slices."""
        return self.tensors[:-1] if self.joins else self.tensors[1:]

    def is_cut(self, least: int) -> bool:
        """Whether it concatenates or slices known tensors of one type, and the whole has at least so many bytes."""
        offsets, whole = self.joins or self.slices, self.whole
        if not offsets or len(self.parts) != len(offsets) or whole is None or whole.nbytes < least:
            return False
        return all(
            each is not None and (each.shape[:-1], each.dtype) == (whole.shape[:-1], whole.dtype) for each in self.parts
        )


class _Network:
    """The tensors and calls of `main`.  After `arrange`, `removed` has the numbers of the calls that are removed.

    `copies` has, by the number of a removed call, the numbers of those of its parts that must still be copied.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self._module = module
        self.tensors: dict[relax.Var, _Tensor] = {}
        self.aliases: dict[relax.Var, relax.Expr] = {}
        self.allocations: dict[relax.Var, relax.Expr] = {}
        self.calls: list[_Call] = []
        self.numbers: dict[relax.Var, int] = {}
        self.removed: set[int] = set()
        self.copies: dict[int, list[int]] = {}
        self._known: dict[tuple[str, int], bool] = {}
        main = module["main"]
        for parameter in main.params:
            self._add(parameter, fixed=True)
        for binding in bindings_of(main):
            self._read(binding)
        self._fix(main.body.body)

    def arrange(self) -> bool:
        """Decide which tensors become parts of others; returns False if none does."""
        least = least_strided(self._module["main"])
        self.removed = {number for number, call in enumerate(self.calls) if call.is_cut(least)}
        while failed := self._try():
            self.removed -= failed
        return bool(self.removed)

    def resolve(self, expression: Any) -> Any:
        """The tensor, or the tuple of tensors, that an expression refers to; None for anything else."""
        match expression:
            case relax.Var():
                if expression in self.tensors:
                    return self.tensors[expression]
                return self.resolve(self.aliases[expression]) if expression in self.aliases else None
            case relax.Tuple():
                return tuple(map(self.resolve, expression.fields))
            case relax.TupleGetItem():
                fields = self.resolve(expression.tuple_value)
                return fields[int(expression.index)] if isinstance(fields, tuple) else None
        return None

    def _add(self, variable: relax.Var, *, fixed: bool) -> None:
        shape = static_shape(variable) if isinstance(variable.ty, relax.TensorType) else None
        if shape is not None:
            self.tensors[variable] = _Tensor(variable, shape, str(variable.ty.dtype), fixed)

    def _read(self, binding: relax.Binding) -> None:
        value = binding.value
        if not isinstance(binding, relax.VarBinding):
            self._fix(value)
        elif operator_of(value) == _ALLOCATE:
            self._add(binding.var, fixed=False)
            self.allocations[binding.var] = value
        elif isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem):
            self.aliases[binding.var] = value
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            self._read_call(binding.var, value)
        else:
            self._fix(value)

    def _read_call(self, variable: relax.Var, call: relax.Call) -> None:
        function = self._module[call.op]
        if not isinstance(function, tvm.tirx.PrimFunc):
            self._fix(call)
            return
        found = [self.resolve(argument) for argument in call.args]
        number = self.numbers[variable] = len(self.calls)
        for position, each in enumerate(found):
            if isinstance(each, _Tensor):
                each.uses.append((number, position))
            else:
                self._fix(call.args[position])
        tensors = tuple(each if isinstance(each, _Tensor) else None for each in found)
        joins, slices = (pieces_of(function, attribute) for attribute in (STRIDED_JOINS, STRIDED_SLICES))
        self.calls.append(_Call(str(call.op.name_hint), tensors, joins, slices))

    def _fix(self, expression: relax.Expr) -> None:
        """Mark the tensors that an expression reads as fixed."""

        def visit(part: relax.Expr) -> None:
            if isinstance(part, relax.Var):
                for each in _leaves(self.resolve(part)):
                    each.fixed = True

        relax.analysis.post_order_visit(expression, visit)

    def _try(self) -> set[int]:
        """Place all parts as if the calls in `removed` could be removed; returns those that cannot."""
        self.copies = {}
        for tensor in self.tensors.values():
            tensor.whole, tensor.offset = None, 0
        return {
            number
            for number in sorted(self.removed)
            if not (self._join(number) if self.calls[number].joins else self._slice(number))
        }

    def _slice(self, number: int) -> bool:
        call = self.calls[number]
        parts = [part for part in call.parts if part is not None]
        if any(part.whole is not None or not self._is_free(part) for part in parts):
            return False
        for part, offset in zip(parts, call.slices, strict=True):
            part.whole, part.offset = call.whole, offset
        return True

    def _join(self, number: int) -> bool:
        call = self.calls[number]
        whole, parts = call.whole, [part for part in call.parts if part is not None]
        if whole is None:
            return False
        copies: list[int] = []
        at = 0
        while at < len(parts):
            part, end = parts[at], at + 1
            if part.whole is not None and part.whole is not whole:
                part, end = _all_parts(parts, at)
            if part.whole is None and part is not whole and self._is_free(part):
                part.whole, part.offset = whole, call.joins[at]
            else:
                copies += range(at, end)
            at = end
        self.copies[number] = copies
        copied = sum(parts[at].channels for at in copies)
        return 4 * copied <= 3 * whole.channels

    def _is_free(self, tensor: _Tensor) -> bool:
        """Whether all calls that use a tensor can use it as a part of another one."""
        left = [use for use in tensor.uses if use[0] not in self.removed]
        return not tensor.fixed and all(self._placeable(number, position) for number, position in left)

    def _placeable(self, number: int, position: int) -> bool:
        key = self.calls[number].name, position
        if key not in self._known:
            function = self._module[key[0]]
            pieces = pieces_of(function, SLICES) or pieces_of(function, JOINS)
            self._known[key] = not pieces and placeable(function, position)
        return self._known[key]


def _all_parts(parts: Sequence[_Tensor], at: int) -> tuple[_Tensor, int]:
    """The tensor that consists of the parts from number `at` on, and the number after them; else only part `at`."""
    whole, end, channels = parts[at].whole, at, 0
    while end < len(parts) and parts[end].whole is whole and parts[end].offset == channels:
        channels += parts[end].channels
        end += 1
    if whole is None or channels != whole.channels:
        return parts[at], at + 1
    return whole, end


def _leaves(found: Any) -> Iterator[_Tensor]:
    if isinstance(found, _Tensor):
        yield found
    elif isinstance(found, tuple):
        for each in found:
            yield from _leaves(each)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Calls functions with whole tensors in place of their parts.

    A tensor that has parts is allocated before its first part is computed.
    """

    def __init__(self, module: tvm.IRModule, network: _Network) -> None:
        super().__init__(module)
        self._module = module
        self._network = network
        wholes = {each.root().variable for each in network.tensors.values() if each.whole is not None}
        self._wholes = {each: network.allocations[each] for each in wholes if each in network.allocations}
        self._allocated_late = set(self._wholes)
        self._made: dict[Any, tvm.ir.GlobalVar] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        variable, network = binding.var, self._network
        if variable in network.allocations and variable in network.tensors:
            if network.tensors[variable].whole is not None or variable in self._allocated_late:
                return
        elif variable in network.aliases:
            found = network.resolve(variable)
            if any(leaf.whole is not None for leaf in _leaves(found)):
                return
            if isinstance(found, _Tensor):
                binding = relax.VarBinding(variable, found.variable)
        elif (number := network.numbers.get(variable)) is not None:
            self._emit_call(binding, number)
            return
        super().visit_var_binding_(binding)

    def _emit_call(self, binding: relax.VarBinding, number: int) -> None:
        call, old = self._network.calls[number], binding.value
        if number in self._network.removed:
            for at in self._network.copies.get(number, ()):
                self._emit_copy(call, at, old)
            return
        arguments, places = list(old.args), {}
        for position, tensor in enumerate(call.tensors):
            if tensor is not None:
                arguments[position] = self._allocated(tensor)
                if tensor.whole is not None:
                    places[position] = tensor.place()
        function = self._placed(call.name, places) if places else old.op
        made = relax.Call(function, arguments, old.attrs, old.ty_args, old.span)
        super().visit_var_binding_(relax.VarBinding(binding.var, made))

    def _emit_copy(self, call: _Call, at: int, old: relax.Call) -> None:
        """Emit a call that copies part number `at` of a concatenation to its place in the whole."""
        part, whole = call.parts[at], call.whole
        if part is None or whole is None:
            return
        place = whole.place()
        target = place._replace(offset=place.offset + call.joins[at])
        key = part.shape, part.dtype, part.place(), target
        if key not in self._made:
            self._made[key] = self.builder_.add_func(copying(*key), f"{call.name}{PLACED}")
        arguments = [self.visit_expr(self._allocated(each)) for each in (part, whole)]
        self.builder_.emit(relax.Call(self._made[key], arguments, old.attrs, old.ty_args, old.span), "_")

    def _allocated(self, tensor: _Tensor) -> relax.Var:
        """The variable of the root of a tensor; the root is allocated here unless it is already."""
        variable = tensor.root().variable
        if (value := self._wholes.pop(variable, None)) is not None:
            self.set_var_remap(variable, self.builder_.emit(value, "whole"))
        return variable

    def _placed(self, name: str, places: Mapping[int, Place]) -> tvm.ir.GlobalVar:
        key = name, tuple(places.items())
        if key not in self._made:
            placed = place(self._module[name], places)
            function = without(placed, "global_symbol", COMPILED, STRIDED_JOINS, STRIDED_SLICES)
            self._made[key] = self.builder_.add_func(function, f"{name}{PLACED}")
        return self._made[key]
