"""Finds attention in a network: softmax(query @ key^T * scale + mask) @ value, as exporters write it.

The search starts at a product, and goes back along its first operand: over reshapes, a softmax, then scales, masks and
reshapes of scores, to another product.  No other operator may read the tensors between.  All indices are expressed in
the coordinates of the scores as the first product computes them (see `programs.attention_pattern`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import RESHAPES, operator_of, static_shape, transposed_axes, value_of
from kintune.compiler.graph.source_views import Network, number_of
from kintune.compiler.graph.strided_views import View, access, whole
from kintune.compiler.programs.attention_pattern import Access, AttentionPattern, Step, StepKind

__all__ = ["Attention", "Operand", "find_attention"]

_TYPE = "float32"
_PRODUCT = "relax.matmul"
_EXCLUDED = -1e30
"""A mask that adds this or less to a score, or replaces it by this or less, excludes it: its weight is 0.

If all scores of a row are excluded so, they still have weights, unless they are -inf."""
_TAME = 1e20
"""The largest magnitude of other masks with which scores that are not excluded are certainly above excluded ones."""
_MANY_ROWS = 16
"""With so many rows or more, a mask that depends on rows and columns is transposed: its rows become contiguous."""


class Operand(NamedTuple):
    """A parameter of the function: a variable or constant of the network.

    If `transposed`, its last two axes are exchanged; if `negated`, its sign is changed.
    """

    expression: relax.Expr
    transposed: bool = False
    negated: bool = False


class Attention(NamedTuple):
    """Attention in a network; `product` is the variable of the last product, `end` that of the result to replace.

    `operands` are the parameters of the function, by the numbers that `pattern` has.
    """

    pattern: AttentionPattern
    operands: tuple[Operand, ...]
    product: relax.Var
    end: relax.Var


class _Action(NamedTuple):
    """An operator between two products: `kind` is a kind of step, or "view", "scale", "softmax", "blank", "nan".

    A "view" is a reshape or transpose.  "blank" sets weights to 0 by a condition, "nan" those that are NaN.
    """

    kind: Any
    operand: Any = None
    number: float = 0.0
    kept: bool = True
    negated: bool = False


class _Causal(NamedTuple):
    """A constant mask that may become a causal step.

    Otherwise it is the step of `action` on scores that are viewed by `view`.  It is `infinite` if it excludes by -inf.
    """

    action: _Action
    view: View
    infinite: bool


class _NotAttention(Exception):
    """The operators are not attention of a supported form."""


def find_attention(function: relax.Function) -> Iterator[Attention]:
    """Yield all attention of a function, in the order of its bindings."""
    network = Network(function)
    for variable, value in list(network.values.items()):
        try:
            if operator_of(value) == _PRODUCT:
                found = _of_products(network, variable, value)
            elif operator_of(value) in ("relax.nn.attention", "relax.nn.attention_bias"):
                found = _of_operator(network, variable, value)
            else:
                continue
        except _NotAttention:
            continue
        network.ends.add(found.end)
        yield found


def _of_products(network: Network, variable: relax.Var, call: relax.Call) -> Attention:
    weights, value = call.args
    found = _before(network, weights, 1, softened=False)
    if found is None:
        raise _NotAttention
    first, actions = found
    query, key = first.args
    names = [kind for kind, *_ in actions]
    _demand(names.count("softmax") == 1)
    scores, shape = _static(first), _static(call)
    _demand(min(len(_static(operand)) for operand in (query, key, value)) > 1)
    _demand(all(_is_float(operand) for operand in (query, key, value, first, call)))
    finder = _Finder(network, scores[:-2], scores[-2], scores[-1], _static(key)[-2], shape[-1])
    finder.read_query(network.view(query, scaled=True), query)
    finder.read_key(network.view(key, scaled=True), key)
    for action in actions:
        finder.apply(action)
    finder.finish_weights()
    finder.read_value(network.view(value), value)
    return finder.attention(variable, shape)


def _of_operator(network: Network, variable: relax.Var, call: relax.Call) -> Attention:
    """Attention that is Relax's own operator; its operands are (batch, rows, heads, depth)."""
    query, key, value, *masks = call.args
    _demand(all(_is_float(operand) for operand in (query, key, value, call)))
    _demand(call.attrs.window_size is None)
    batch, rows, heads, depth = _static(query)
    columns, width = _static(value)[1], _static(value)[3]
    finder = _Finder(network, (batch, heads), rows, columns, depth, width)
    finder.read_query(network.view(query, scaled=True).permuted([0, 2, 1, 3]), None)
    finder.read_key(network.view(key, scaled=True).permuted([0, 2, 3, 1]), None)
    scale = call.attrs.scale
    finder.apply(_Action("scale", number=1 / math.sqrt(depth) if scale is None else float(scale.value)))
    for mask in masks:
        finder.apply(_Action(StepKind.ADD, mask))
    causal = call.attrs.causal_mask
    if causal is not None:
        shifts = {"TopLeft": 0, "BottomRight": abs(columns - rows)}
        _demand(str(causal) in shifts)
        finder.steps.append(Step(StepKind.CAUSAL, number=float(shifts[str(causal)]).hex()))
    finder.apply(_Action("softmax", number=3))
    finder.finish_weights()
    finder.read_value(network.view(value).permuted([0, 2, 1, 3]), None)
    finder.view = finder.view.permuted([0, 2, 1, 3])
    return finder.attention(variable, _static(call))


def _before(
    network: Network, expression: relax.Expr, uses: int, *, softened: bool
) -> tuple[relax.Call, list[_Action]] | None:
    """The first product from which an expression is computed, and the operators between; None where there is none.

    `softened` says whether a softmax is among the operators after the expression.  The expression must be read `uses`
    times.
    """
    value = network.value(expression)
    if not network.is_inner(expression, uses) or not isinstance(value, relax.Call) or not _is_float(value):
        return None
    name = operator_of(value)
    if name == _PRODUCT:
        return (value, []) if softened else None
    for operand, action, readers, passed in _candidates(network, name, value, softened):
        shape = static_shape(operand)
        found = _before(network, operand, readers, softened=softened or passed) if shape is not None else None
        if found is not None and (action.kind == "view" or shape == static_shape(value)):
            return found[0], [*found[1], action]
    return None


def _candidates(
    network: Network, name: str, value: relax.Call, softened: bool
) -> Iterator[tuple[relax.Expr, _Action, int, bool]]:
    """Yields operands that may be computed from scores.

    Each comes with the action on it, the number of its reads, and whether the action is a softmax.
    """
    if name in RESHAPES or name == "relax.permute_dims":
        yield value.args[0], _Action("view", value), 1, False
    elif name == "relax.nn.softmax" and not softened:
        axis, rank = int(value.attrs.axis), int(value.ty.ndim)
        yield value.args[0], _Action("softmax", number=axis % rank), 1, True
    elif name == "relax.divide" and not softened and (operand := _written_out(network, value)) is not None:
        yield operand, _Action("softmax", number=int(value.ty.ndim) - 1), 2, True
    elif name in ("relax.multiply", "relax.divide") and softened:
        pairs = [value.args, value.args[::-1]] if name == "relax.multiply" else [value.args]
        for operand, factor in pairs:
            if (number := number_of(factor)) is not None and number != 0:
                scale = number if name == "relax.multiply" else 1 / number
                yield operand, _Action("scale", number=scale), 1, False
    elif name == "relax.add" and softened:
        for operand, other in (value.args, value.args[::-1]):
            yield operand, _Action(StepKind.ADD, other), 1, False
    elif name == "relax.subtract" and softened:
        yield value.args[0], _Action(StepKind.ADD, value.args[1], negated=True), 1, False
    elif name == "relax.where":
        yield from _selected(network, value, softened)


def _selected(network: Network, value: relax.Call, softened: bool) -> Iterator[tuple[relax.Expr, _Action, int, bool]]:
    condition, first, second = value.args
    if softened:
        for operand, filled, kept in ((first, second, True), (second, first, False)):
            if (number := number_of(filled)) is not None:
                yield operand, _Action(StepKind.SELECT, condition, number, kept), 1, False
    elif number_of(first) == 0:
        tested = network.value(condition)
        if operator_of(tested) == "relax.isnan" and network.is_inner(condition) and tested.args[0].same_as(second):
            yield second, _Action("nan"), 2, False
        else:
            yield second, _Action("blank", condition), 1, False


def _written_out(network: Network, value: relax.Call) -> relax.Expr | None:
    """The operand of a softmax over the last axis that is written as exp(x - max(x)) / sum(exp(x - max(x)))."""
    powers, total = value.args
    summed, power = network.value(total), network.value(powers)
    last = int(value.ty.ndim) - 1
    if not (_over_last(summed, "relax.sum", last) and operator_of(power) == "relax.exp"):
        return None
    if not (summed.args[0].same_as(powers) and network.is_inner(powers, 2) and network.is_inner(total)):
        return None
    reduced = network.value(power.args[0])
    if operator_of(reduced) != "relax.subtract" or not network.is_inner(power.args[0]):
        return None
    operand, most = reduced.args
    found = network.value(most)
    if _over_last(found, "relax.max", last) and network.is_inner(most) and found.args[0].same_as(operand):
        return operand
    return None


def _over_last(value: Any, name: str, last: int) -> bool:
    if operator_of(value) != name or not value.attrs.keepdims or value.attrs.axis is None:
        return False
    return [int(axis) % (last + 1) for axis in value.attrs.axis] == [last]


class _Finder:
    """Collects operands and steps, while the scores are followed from the first product to the second."""

    def __init__(self, network: Network, batch: Sequence[int], rows: int, columns: int, depth: int, width: int) -> None:
        self._network = network
        self._operands: list[Operand] = []
        self._batch, self._rows, self._columns, self._depth, self._width = tuple(batch), rows, columns, depth, width
        self._extents = (*batch, rows, columns, depth, width)
        self._row = len(self._batch)
        self._accesses: dict[str, Access] = {}
        self._scale = 1.0
        self._blank: Access | None = None
        self._softened = self._zero_nan = False
        self.steps: list[Step] = []
        self._causal: dict[int, _Causal] = {}
        self._untamed: set[int] = set()
        self.view = View.of(None, self._extents[: self._row + 2])
        _demand(columns > 1 and 0 not in self._extents)

    def read_query(self, view: View, plain: relax.Expr | None) -> None:
        """Read the query through `view`; where its indices cannot be expressed, read the tensor `plain`, if given."""
        self._read("query", view, plain, [*self.view.axes[: self._row + 1], self._axis(2)])

    def read_key(self, view: View, plain: relax.Expr | None) -> None:
        """Read the transposed key, whose last axes are depth and columns; `plain` is as for the query."""
        _demand(not isinstance(view.source, tvm.ir.GenericConst))
        self._read("key", view, plain, [*self.view.axes[: self._row], self._axis(2), self._axis(1)])

    def read_value(self, view: View, plain: relax.Expr | None) -> None:
        """Read the value, whose last axes are columns and width; `view` of the finder becomes that of the product."""
        _demand(not isinstance(view.source, tvm.ir.GenericConst))
        *batch, row, _ = self.view.axes
        _demand(len(view.axes) <= len(self.view.axes))
        self._read("value", view, plain, [*batch, self._axis(1), self._axis(3)])
        self.view = self.view._replace(axes=(*batch, row, self._axis(3)), offsets=(0,) * len(self._extents))

    def apply(self, action: _Action) -> None:
        match action.kind:
            case "view":
                self._reshape(action.operand)
            case "scale":
                _demand(not self.steps and not self._softened)
                self._scale *= action.number
            case "softmax":
                _demand(action.number == len(self.view.axes) - 1 and self.view.axes[-1] == self._axis(1))
                self._softened = True
            case "nan":
                self._zero_nan = True
            case "blank":
                _demand(self._blank is None)
                self._blank = self._condition(action.operand)
                _demand(not self._blank.uses(self._row + 1))
            case StepKind.ADD | StepKind.SELECT:
                self._change(action)

    def finish_weights(self) -> None:
        """Check the weights, whose last axes must be rows and columns, and undo causal steps that are not exact."""
        _demand(self._softened and self.view.axes[-2:] == (self._axis(0), self._axis(1)))
        while (inexact := next((at for at in self._causal if not self._is_exact(at)), None)) is not None:
            action, view, _ = self._causal.pop(inexact)
            self.steps[inexact] = self._step(action, view)
            self._untamed.add(inexact)

    def attention(self, product: relax.Var, shape: tuple[int, ...]) -> Attention:
        """The attention that was found, with the reshapes and transposes after it as long as each is read once."""
        _demand(self.view.shape == shape and math.isfinite(self._scale))
        end, result = product, self._result(self.view)
        _demand(result is not None)
        view, variable = self.view, product
        while self._network.is_inner(variable):
            (reader,) = self._network.readers(variable)
            call = self._network.values[reader]
            after = _viewed(view, call)
            if after is None or not call.args[0].same_as(variable):
                break
            view, variable = after, reader
            if (found := self._result(view)) is not None:
                end, result = variable, found
        pattern = AttentionPattern(
            batch=self._batch,
            rows=self._rows,
            columns=self._columns,
            depth=self._depth,
            width=self._width,
            scale=self._scale,
            result=result,  # type: ignore[arg-type]
            steps=tuple(self.steps),
            blank=self._blank,
            zero_nan=self._zero_nan,
            **self._accesses,
        )
        return Attention(pattern, tuple(self._operands), product, end)

    def _result(self, view: View) -> Access | None:
        return self._access(View.of(None, view.shape), len(self._operands), view.axes)

    def _axis(self, number: int) -> Any:
        """Rows, columns, depth or width as an axis."""
        coordinate = self._row + number
        return whole(self._extents[coordinate], coordinate)

    def _access(self, view: View, parameter: int, coordinates: Sequence[Any]) -> Access | None:
        return access(view, parameter, coordinates, self._extents, range(self._row, self._row + 4))

    def _read(self, name: str, view: View, plain: relax.Expr | None, coordinates: Sequence[Any]) -> None:
        for candidate in (view, View.of(plain, _static(plain)) if plain is not None else None):
            if candidate is None:
                continue
            found = self._access(candidate, 0, coordinates)
            if found is not None:
                self._accesses[name] = self._at(found, Operand(candidate.source))
                self._scale *= candidate.scale
                return
        raise _NotAttention

    def _position(self, operand: Operand) -> int:
        for number, known in enumerate(self._operands):
            if known[1:] == operand[1:] and _same(known.expression, operand.expression):
                return number
        self._operands.append(operand)
        return len(self._operands) - 1

    def _reshape(self, call: relax.Call) -> None:
        view = _viewed(self.view, call)
        _demand(view is not None)
        self.view = view  # type: ignore[assignment]

    def _change(self, action: _Action) -> None:
        """Add the step of an addition or a selection; a constant without effect becomes no step."""
        mask, added = action.operand, action.kind is StepKind.ADD
        _demand(str(mask.ty.dtype) == (_TYPE if added else "bool"))
        largest = math.inf if added else abs(action.number)
        if isinstance(mask, tvm.ir.GenericConst):
            values = value_of(mask)
            if not added:
                values = np.where(values.astype(bool) == action.kept, 0.0, min(action.number, -1.0))
            elif action.negated:
                values = -values
            if (values == 0).all():
                return
            if (shift := self._shift(values)) is not None:
                self._causal[len(self.steps)] = _Causal(action, self.view, bool((values[values != 0] == -np.inf).all()))
                self.steps.append(Step(StepKind.CAUSAL, number=float(shift).hex()))
                return
            largest = float(np.abs(values).max()) if added else largest
        if not largest <= _TAME:  # NaN is not
            self._untamed.add(len(self.steps))
        self.steps.append(self._step(action, self.view))

    def _step(self, action: _Action, view: View) -> Step:
        access = self._mask(action.operand, view, action.negated)
        number = "" if action.kind is StepKind.ADD else action.number.hex()
        return Step(action.kind, access, number, action.kept)

    def _is_exact(self, at: int) -> bool:
        """Whether the causal step `at` has the same effect as the constant mask in its place.

        A causal step gives excluded scores the weight 0.  With the mask, they may have another weight: if a later
        selection replaces them by a finite number, or if the mask is finite and other masks may make all scores of a
        row as low.
        """
        replaced = any(step.kind is StepKind.SELECT and step.value != -math.inf for step in self.steps[at + 1 :])
        return not replaced and (self._causal[at].infinite or not self._untamed)

    def _shift(self, mask: NDArray[Any]) -> int | None:
        """The number s if the mask is causal: row r sees columns up to r + s, at least one; else None."""
        if not ((mask == 0) | (mask <= _EXCLUDED)).all():
            return None
        rank = mask.ndim
        if rank < 2 or mask.shape[-2:] != (self._rows, self._columns) or max((1, *mask.shape[:-2])) > 1:
            return None
        if self.view.axes[-2:] != (self._axis(0), self._axis(1)):
            return None
        seen = mask.reshape(mask.shape[-2:]) == 0
        shift = int(seen[0].sum()) - 1
        return shift if shift >= 0 and np.array_equal(seen, np.tril(np.ones_like(seen), shift)) else None

    def _condition(self, condition: relax.Expr) -> Access:
        _demand(str(condition.ty.dtype) == "bool")
        return self._mask(condition, self.view)

    def _mask(self, mask: relax.Expr, scores: View, negated: bool = False) -> Access:
        """The indices at which a tensor is read that is broadcast to the scores, whose view is `scores`."""
        shape = _static(mask)
        _demand(shape)
        plain = View.of(mask, shape)
        for view in (self._network.view(mask), plain):
            found = self._access(view, 0, scores.axes)
            if found is None:
                continue
            if self._rows < _MANY_ROWS or not (found.uses(self._row) and found.uses(self._row + 1)):
                return self._at(found, Operand(view.source, negated=negated))
            order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            turned = View.of(mask, [shape[axis] for axis in order]).permuted(order)
            found = self._access(turned, 0, scores.axes)
            if found is not None:
                return self._at(found, Operand(mask, True, negated))
        raise _NotAttention

    def _at(self, found: Access, operand: Operand) -> Access:
        return Access(self._position(operand), found.indices)


def _viewed(view: View, value: relax.Expr) -> View | None:
    """A view after a reshape or transpose; None for any other operator."""
    name, shape = operator_of(value), static_shape(value) if isinstance(value, relax.Call) else None
    if shape is None:
        return None
    if name in RESHAPES:
        return view.reshaped(shape)
    return view.permuted(transposed_axes(value)) if name == "relax.permute_dims" else None


def _same(first: relax.Expr, second: relax.Expr) -> bool:
    constants = [isinstance(one, tvm.ir.GenericConst) for one in (first, second)]
    if all(constants):
        return bool(first.value.same_as(second.value))
    return not any(constants) and bool(first.same_as(second))


def _static(expression: relax.Expr) -> tuple[int, ...]:
    shape = static_shape(expression)
    _demand(shape is not None)
    return shape  # type: ignore[return-value]


def _is_float(expression: relax.Expr) -> bool:
    return isinstance(expression.ty, relax.TensorType) and str(expression.ty.dtype) == _TYPE


def _demand(condition: Any) -> None:
    if not condition:
        raise _NotAttention
