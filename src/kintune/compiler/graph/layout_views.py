"""Views: the stored tensor of each tensor of a network, and its axis order, while layouts are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tvm
from tvm import relax

from kintune.compiler.graph import permutations
from kintune.compiler.graph.rewriting import static_shape
from kintune.compiler.tir import plain_schedule, without
from kintune.models.interpolation import INTERPOLATION

__all__ = ["LayoutResult", "TensorView", "TensorViews"]

Order = tuple[int, ...]


class TensorView(NamedTuple):
    """A tensor of the network: the expression that stores it, its shape, and its order (see `permutations`).

    The order is `firm` if an operator chose it, as convolutions do; other orders come from the network's transposes.
    """

    stored: relax.Expr
    shape: tuple[int, ...]
    order: Order
    firm: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the axes are stored as the network has them."""
        return self.order == permutations.identity(len(self.shape))

    def place(self, axis: int) -> int:
        """The stored axis of an axis of the network's tensor, which may count from the end."""
        return self.order[int(axis) % len(self.shape)]

    def lies_in(self, order: Order) -> bool:
        """Whether the tensor is stored in `order`, of its rank or a larger one; axes of one element do not matter."""
        rank = len(order)
        shape = (1,) * (rank - len(self.shape)) + self.shape
        return permutations.is_copy_free(shape, permutations.expanded(self.order, rank), order)

    def keeping(self, expression: relax.Expr) -> LayoutResult:
        """The result of an operator that keeps the order of this operand."""
        return LayoutResult(expression, self.order, self.firm)


class LayoutResult(NamedTuple):
    """An operator computed in another axis order: the expression, and the order of its result or results.

    If the expression has other axes than the result, it is reshaped to `stored`, the shape in which the result is
    stored.
    """

    expression: relax.Expr
    order: Order
    firm: bool = True
    stored: tuple[int, ...] | None = None


class TensorViews:
    """The views of all tensors; layout rules get their operands from it, in the order that they need."""

    def __init__(self, builder: relax.BlockBuilder, visit: Callable[[relax.Expr], relax.Expr]) -> None:
        """`builder` emits transposes and reshapes, `visit` maps an expression of the old network to the new one."""
        self._builder = builder
        self._visit = visit
        self._views: dict[relax.Var, TensorView] = {}
        self._groups: dict[relax.Var, tuple[relax.Var, Order]] = {}
        self._converted: dict[tuple[object, Order, Order], relax.Expr] = {}

    def view(self, expression: relax.Expr) -> TensorView | None:
        """The view of a tensor; None where the expression is no tensor of known shape."""
        if isinstance(expression, relax.Var) and expression in self._views:
            return self._views[expression]
        shape = static_shape(expression)
        return None if shape is None else TensorView(self._visit(expression), shape, permutations.identity(len(shape)))

    def keep(self, variable: relax.Var, view: TensorView) -> None:
        """Set the view of a variable of the network."""
        self._views[variable] = view

    def keep_group(self, variable: relax.Var, stored: relax.Var, order: Order) -> None:
        """Set the view of a variable that is a tuple of tensors: all are stored in `stored`, in one order."""
        self._groups[variable] = (stored, order)

    def group(self, variable: relax.Expr) -> tuple[relax.Var, Order] | None:
        """The stored tuple of a variable, and the order of its tensors; None where it has none."""
        return self._groups.get(variable) if isinstance(variable, relax.Var) else None

    def knows(self, variable: relax.Var) -> bool:
        """Whether a view of the variable, or of the tuple that it is, was set."""
        return variable in self._views or variable in self._groups

    def forget(self) -> None:
        """Drop all views at the end of a block, whose variables cannot be used elsewhere."""
        self._views.clear()
        self._groups.clear()
        self._converted.clear()

    def plain(self, variable: relax.Var) -> relax.Expr:
        """The variable's tensor, or tuple of tensors, in the network's own axis order."""
        if variable not in self._groups:
            view = self._views[variable]
            return self.arrange(view, permutations.identity(len(view.shape)))
        stored, order = self._groups[variable]
        fields = []
        for i, field in enumerate(variable.ty.fields):
            shape = tuple(int(extent) for extent in field.shape)
            view = TensorView(self._builder.emit(relax.TupleGetItem(stored, i)), shape, order)
            fields.append(self.arrange(view, permutations.identity(len(shape))))
        return relax.Tuple(fields)

    def permuted(self, kernel: tvm.ir.GlobalVar, order: Sequence[int]) -> tvm.ir.GlobalVar:
        """A copy of a kernel of one block whose first operand and result are stored in `order`; both have its rank."""
        function = self._builder.get()[kernel]
        schedule = plain_schedule(function)
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root", func_name="main"))
        axes = permutations.inverse(tuple(order))
        mapping = tvm.tirx.IndexMap.from_func(lambda *at: [at[axis] for axis in axes], ndim=len(axes))
        first = function.params[0]
        reads = [region.source for region in schedule.get(block).reads]
        place = next(at for at, source in enumerate(reads) if source.same_as(first))
        schedule.transform_layout(block, ("read", place), mapping)
        schedule.transform_layout(block, ("write", 0), mapping)
        schedule.transform_block_layout(block, mapping)
        made = without(schedule.mod["main"], "global_symbol", INTERPOLATION)  # the latter names axes of the old order
        return self._builder.add_func(made, str(kernel.name_hint))

    def operand(self, expression: relax.Expr) -> relax.Expr:
        """An operand in the network's own axis order."""
        return self._visit(expression)

    def reshaped(self, view: TensorView, order: Sequence[int], shape: Sequence[int]) -> relax.Expr:
        """The tensor arranged in `order`, and then reshaped."""
        return self._builder.emit(relax.op.reshape(self.arrange(view, order), list(shape)))

    def arrange(self, view: TensorView, order: Sequence[int]) -> relax.Expr:
        """The tensor stored in `order`, which may have a higher rank than the tensor: axes of one element are added."""
        order = tuple(order)
        rank = len(order)
        shape = (1,) * (rank - len(view.shape)) + view.shape
        have = permutations.expanded(view.order, rank)
        if have == order and rank == len(view.shape):
            return view.stored
        key = _conversion(view, order)
        if key not in self._converted:
            self._converted[key] = self._builder.emit(self._moved(view.stored, shape, have, order))
        return self._converted[key]

    def has(self, view: TensorView, order: Order) -> bool:
        """Whether the tensor is available in `order` without a transpose: it is stored so, or was converted before."""
        return view.lies_in(order) or _conversion(view, order) in self._converted

    def _moved(self, stored: relax.Expr, shape: tuple[int, ...], have: Order, order: Order) -> relax.Expr:
        if permutations.is_copy_free(shape, have, order):
            return relax.op.reshape(stored, permutations.stored(shape, order))
        source = permutations.stored(shape, have)
        if static_shape(stored) != source:
            stored = self._builder.emit(relax.op.reshape(stored, source))
        return relax.op.permute_dims(stored, list(permutations.compose(have, permutations.inverse(order))))


def _conversion(view: TensorView, order: Order) -> tuple[object, Order, Order]:
    """The key under which a tensor converted to another order is kept."""
    constant = isinstance(view.stored, tvm.ir.GenericConst)
    identity = view.stored.value.__chandle__() if constant else view.stored
    return identity, permutations.expanded(view.order, len(order)), order
