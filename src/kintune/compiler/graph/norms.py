"""Recognises norms that exporters write as several operators, and makes one operator of each.

Recognised are `(x - mean(x)) / sqrt(variance(x) + epsilon)`, which is a layer, instance or group norm, and
`x / sqrt(mean(x * x) + epsilon)`, an RMS norm.  A constant scale and offset after it become the norm's own.  Operators
that do not match exactly are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import Bindings, Rewriter, operator_of, pass_of, static_shape, value_of

__all__ = ["RecogniseNorms"]

_TYPE = "float32"
_LARGEST = 1e18
"""Larger scales and offsets are not folded into a norm: products of them could overflow float32."""

_Numbers: TypeAlias = "NDArray[Any]"


class _Norm(NamedTuple):
    """A norm of `data` over `axes`, times `scale`, plus `offset`; both broadcast to the result.

    If it is not `centred`, no mean is subtracted.  With `groups`, the channels (axis 1) of `data` are normalised in so
    many groups, each together with all axes behind the channels.
    """

    data: relax.Expr
    axes: tuple[int, ...]
    epsilon: float
    centred: bool
    scale: _Numbers
    offset: _Numbers
    groups: int = 0


class _RecogniseNorms(Rewriter):
    """A pass that replaces operators which compute a norm of float32 by one operator; dead operators remain."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._matcher = _Matcher(self._bindings)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if operator_of(binding.value) in _ROOTS and (norm := self._matcher.norm(binding.var)) is not None:
            made = _operator(norm)
            if made is not None:
                binding = relax.VarBinding(binding.var, made)
        super().visit_var_binding_(binding)


RecogniseNorms = partial(pass_of, _RecogniseNorms)


class _Matcher:
    """Matches the operators that compute a variable with those of a norm."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._norms: dict[relax.Var, _Norm | None] = {}

    def norm(self, expression: relax.Expr) -> _Norm | None:
        """The norm that computes the expression; None if it is no norm."""
        if not isinstance(expression, relax.Var) or expression not in self._bindings.values:
            return None
        if expression not in self._norms:
            self._norms[expression] = None
            self._norms[expression] = self._find(self._bindings.values[expression])
        return self._norms[expression]

    def _find(self, value: relax.Expr) -> _Norm | None:
        shape = static_shape(value) if isinstance(value, relax.Call) else None
        if shape is None or str(value.ty.dtype) != _TYPE or 0 in shape:
            return None
        found = self._match(value, shape)
        # An epsilon with more axes than the tensor adds axes to the result; then it is no norm of the tensor.
        return found if found is not None and static_shape(found.data) == shape else None

    def _match(self, value: relax.Call, shape: tuple[int, ...]) -> _Norm | None:
        match operator_of(value):
            case "relax.multiply":
                first, second = value.args
                found = self._quotient(first, self._inverse(second)) or self._quotient(second, self._inverse(first))
                return found or self._affine(value, shape)
            case "relax.divide":
                found = self._quotient(value.args[0], self._of_variance(value.args[1], 0.5))
                return found or self._affine(value, shape)
            case "relax.add":
                first, second = value.args
                return self._affine(value, shape) or self._folded(first, second) or self._folded(second, first)
            case "relax.subtract":
                return self._affine(value, shape)
            case "relax.reshape":
                return self._grouped(value, shape)
            case "relax.nn.layer_norm":
                return self._layer_norm(value)
        return None

    def _call(self, expression: relax.Expr, name: str) -> Sequence[relax.Expr] | None:
        """The operands of the call that computes the expression, if it calls the operator `name`; else None."""
        value = self._bindings.value(expression)
        return value.args if operator_of(value) == f"relax.{name}" else None

    def _constant(self, expression: relax.Expr) -> _Numbers | None:
        """The values of a float32 constant, in double precision; None where one is larger than `_LARGEST` or NaN."""
        value = self._bindings.constant(expression)
        if value is None or str(value.ty.dtype) != _TYPE:
            return None
        numbers = value_of(value).astype(np.float64)
        return numbers if bool((np.abs(numbers) <= _LARGEST).all()) else None  # NaN is not

    def _number(self, expression: relax.Expr) -> float | None:
        numbers = self._constant(expression)
        return float(numbers.reshape(())) if numbers is not None and numbers.size == 1 else None

    def _statistic(self, name: str, expression: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
        """The tensor whose mean or variance the expression is, and the axes, which must be kept; else None."""
        value = self._bindings.value(expression)
        if operator_of(value) != f"relax.{name}" or not value.attrs.keepdims:
            return None
        axes, rank = value.attrs.axis, int(value.args[0].ty.ndim)
        if axes is None or rank <= 0:
            return None
        return value.args[0], tuple(sorted({int(axis) % rank for axis in axes}))

    def _centred(self, expression: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
        """The tensor and the axes if the expression is the tensor minus its mean over them; else None."""
        operands = self._call(expression, "subtract")
        mean = self._statistic("mean", operands[1]) if operands else None
        return mean if operands and mean and _same(mean[0], operands[0]) else None

    def _power(self, expression: relax.Expr) -> tuple[relax.Expr | None, float]:
        """The base and the exponent if the expression is a constant power of something; else None and 0."""
        for name, exponent in (("square", 2.0), ("sqrt", 0.5), ("rsqrt", -0.5)):
            if operands := self._call(expression, name):
                return operands[0], exponent
        if (operands := self._call(expression, "multiply")) and _same(operands[0], operands[1]):
            return operands[0], 2.0
        if operands := self._call(expression, "power"):
            return operands[0], self._number(operands[1]) or 0.0
        if (operands := self._call(expression, "divide")) and self._number(operands[0]) == 1.0:
            base, exponent = self._power(operands[1])
            return base, -exponent if exponent == 0.5 else 0.0
        return None, 0.0

    def _of_variance(self, expression: relax.Expr, wanted: float) -> _Norm | None:
        """The norm, with neither scale nor offset, the power of whose variance the expression is; else None."""
        base, exponent = self._power(expression)
        return self._variance(base) if base is not None and exponent == wanted else None

    def _inverse(self, expression: relax.Expr) -> _Norm | None:
        """The norm whose inverse deviation the expression is; else None."""
        return self._of_variance(expression, -0.5)

    def _variance(self, expression: relax.Expr) -> _Norm | None:
        """The norm if the expression is its variance, or mean square, plus a constant epsilon; else None."""
        operands = self._call(expression, "add")
        if not operands:
            return None
        for first, second in (operands, operands[::-1]):
            epsilon = self._number(second)
            if epsilon is None or epsilon < 0:
                continue
            if found := self._statistic("variance", first):
                return _plain(*found, epsilon, centred=True)
            mean = self._statistic("mean", first)
            root, exponent = self._power(mean[0]) if mean else (None, 0.0)
            if mean is None or root is None or exponent != 2.0:
                continue
            centred = self._centred(root)
            if centred is not None and centred[1] == mean[1]:
                return _plain(*centred, epsilon, centred=True)
            return _plain(root, mean[1], epsilon, centred=False)
        return None

    def _quotient(self, dividend: relax.Expr, norm: _Norm | None) -> _Norm | None:
        """`norm` if the dividend is its tensor (minus the mean, if it is centred); else None."""
        if norm is None or str(norm.data.ty.dtype) != _TYPE:
            return None
        if not norm.centred:
            return norm if _same(dividend, norm.data) else None
        centred = self._centred(dividend)
        return norm if centred and centred[1] == norm.axes and _same(centred[0], norm.data) else None

    def _folded(self, product: relax.Expr, shift: relax.Expr) -> _Norm | None:
        """The norm of the form x * s + (offset - mean * s), where s is the inverse deviation times a scale."""
        scaled, moved = self._call(product, "multiply"), self._call(shift, "subtract")
        offset = self._constant(moved[0]) if moved else None
        mean_scaled = self._call(moved[1], "multiply") if moved else None
        if not scaled or not mean_scaled or offset is None:
            return None
        for data, factor in (scaled, scaled[::-1]):
            norm, scale = self._factor(factor)
            if norm is None or not norm.centred or not _same(data, norm.data):
                continue
            for mean, other in (mean_scaled, mean_scaled[::-1]):
                found = self._statistic("mean", mean)
                if found and _same(found[0], data) and found[1] == norm.axes and _same(other, factor):
                    shape = static_shape(norm.data) or ()
                    with_scale = _taken_in(norm, scale, np.zeros(()), shape)
                    return None if with_scale is None else _taken_in(with_scale, np.ones(()), offset, shape)
        return None

    def _factor(self, expression: relax.Expr) -> tuple[_Norm | None, _Numbers]:
        """The norm and the scale if the expression is an inverse deviation, perhaps scaled; else None and 1."""
        if norm := self._inverse(expression):
            return norm, np.ones(())
        operands = self._call(expression, "multiply")
        for first, second in (operands, operands[::-1]) if operands else ():
            scale = self._constant(second)
            if scale is not None and (norm := self._inverse(first)):
                return norm, scale
        return None, np.ones(())

    def _affine(self, value: relax.Call, shape: tuple[int, ...]) -> _Norm | None:
        """The norm of an operand with the constant of this operator folded into its scale or offset."""
        name = operator_of(value)
        for place, (first, second) in enumerate((value.args, value.args[::-1])):
            if place and name == "relax.divide":
                return None
            constant = self._constant(second)
            norm = self.norm(first) if constant is not None and self._bindings.uses(first) == 1 else None
            if norm is None or constant is None:
                continue
            if name == "relax.divide":
                if not bool((np.abs(constant) >= 1 / _LARGEST).all()):
                    return None
                scale, offset = 1 / constant, np.zeros(())
            elif name == "relax.multiply":
                scale, offset = constant, np.zeros(())
            elif name == "relax.add":
                scale, offset = np.ones(()), constant
            else:
                scale, offset = (-np.ones(()), constant) if place else (np.ones(()), -constant)
            return _taken_in(norm, scale, offset, shape)
        return None

    def _grouped(self, value: relax.Call, shape: tuple[int, ...]) -> _Norm | None:
        """The group norm of a tensor that is reshaped to groups of channels, normalised, and reshaped back."""
        inner = value.args[0]
        norm = self.norm(inner) if isinstance(inner, relax.Var) and self._bindings.uses(inner) == 1 else None
        if norm is None or norm.groups or not norm.centred or len(shape) < 3:
            return None
        operands = self._call(norm.data, "reshape")
        before = static_shape(norm.data)
        if not operands or before is None or static_shape(operands[0]) != shape:
            return None
        batch, groups = before[0], before[1] if len(before) > 2 else 0
        if not groups or batch != shape[0] or shape[1] % groups or norm.axes != tuple(range(2, len(before))):
            return None
        if not isinstance(operands[0], relax.Var):
            return None
        parts = []
        for numbers in (norm.scale, norm.offset):
            wide = numbers.reshape((1,) * (len(before) - numbers.ndim) + numbers.shape)
            if wide.size != int(np.prod(wide.shape[1:2])):
                return None
            channels = np.repeat(np.broadcast_to(wide.reshape(-1), (groups,)), shape[1] // groups)
            parts.append(channels.reshape((1, -1) + (1,) * (len(shape) - 2)))
        axes = tuple(range(2, len(shape)))
        return _Norm(operands[0], axes, norm.epsilon, True, parts[0], parts[1], groups)

    def _layer_norm(self, value: relax.Call) -> _Norm | None:
        data, scale, offset = value.args
        shape, axes = static_shape(data), [int(axis) for axis in value.attrs.axes]
        numbers = [self._constant(scale), self._constant(offset)]
        if shape is None or axes != sorted(axes) or min(axes) < 0 or not isinstance(data, relax.Var):
            return None
        spread = [1 if place not in axes else extent for place, extent in enumerate(shape)]
        if numbers[0] is None or numbers[1] is None:
            return None
        scales, offsets = numbers[0].reshape(spread), numbers[1].reshape(spread)
        return _Norm(data, tuple(axes), float(value.attrs.epsilon), True, scales, offsets)


_ROOTS = frozenset({"relax.add", "relax.divide", "relax.multiply", "relax.reshape", "relax.subtract"})
"""The operators that may be the last of a norm."""


def _plain(data: relax.Expr, axes: tuple[int, ...], epsilon: float, *, centred: bool) -> _Norm:
    return _Norm(data, axes, epsilon, centred, np.ones(()), np.zeros(()))


def _same(one: relax.Expr, other: relax.Expr) -> bool:
    """Whether both are the same variable."""
    return isinstance(one, relax.Var) and isinstance(other, relax.Var) and bool(one.same_as(other))


def _taken_in(norm: _Norm, scale: _Numbers, offset: _Numbers, shape: tuple[int, ...]) -> _Norm | None:
    """The norm with another scale and offset applied to its result; None if no operator can express that."""
    scales, offsets = norm.scale * scale, norm.offset * scale + offset
    for numbers in (scales, offsets):
        if numbers.ndim > len(shape) or not bool((np.abs(numbers) <= _LARGEST).all()):
            return None
        if any(extent not in (1, whole) for extent, whole in zip(numbers.shape[::-1], shape[::-1], strict=False)):
            return None
    taken = norm._replace(scale=scales, offset=offsets)
    data = static_shape(norm.data)
    return taken if data == shape and _parameters(taken) is not None else None


def _parameters(norm: _Norm) -> tuple[str, int, _Numbers, _Numbers] | None:
    """The norm's operator, the axis of its channels (-1 where it has none), and the scale and offset for the operator.

    None if no operator has such a scale and offset.
    """
    shape = static_shape(norm.data)
    if shape is None or len(norm.axes) == len(shape):  # no axis is kept, so there are no rows
        return None
    rank = len(shape)
    scale, offset = (n.reshape((1,) * (rank - n.ndim) + n.shape) for n in (norm.scale, norm.offset))
    varying = {axis for n in (scale, offset) for axis in range(rank) if n.shape[axis] != 1}
    if norm.groups:
        channel, name = 1, "group_norm"
    elif not norm.centred:
        if offset.any():
            return None
        channel, name = -1, "rms_norm"
    elif not varying and rank > 2 and norm.axes == tuple(range(2, rank)):
        channel, name = 1, "instance_norm"
    elif varying <= set(norm.axes):
        channel, name = -1, "layer_norm"
    else:
        channel, name = min(varying), "instance_norm"
    allowed = set(norm.axes) if channel < 0 else {channel}
    if not varying <= allowed or (channel in norm.axes and channel >= 0):
        return None
    wanted = [shape[axis] if axis in allowed else 1 for axis in range(rank)]
    extents = [shape[axis] for axis in norm.axes] if channel < 0 else [shape[channel]]
    scales, offsets = (np.broadcast_to(n, wanted).reshape(extents) for n in (scale, offset))
    return name, channel, scales, offsets


def _operator(norm: _Norm) -> relax.Expr | None:
    """The norm as one operator; None if there is none for it."""
    found = _parameters(norm)
    if found is None:
        return None
    name, channel, scales, offsets = found
    scale, offset = (relax.const(np.ascontiguousarray(n, _TYPE), _TYPE) for n in (scales, offsets))
    axes = list(norm.axes)
    if name == "group_norm":
        return relax.op.nn.group_norm(norm.data, scale, offset, norm.groups, channel, axes, norm.epsilon)
    if name == "instance_norm":
        return relax.op.nn.instance_norm(norm.data, scale, offset, channel, axes, norm.epsilon)
    if name == "rms_norm":
        return relax.op.nn.rms_norm(norm.data, scale, axes, norm.epsilon)
    return relax.op.nn.layer_norm(norm.data, scale, offset, axes, norm.epsilon)
