"""Element-wise arithmetic of one and of several operands, conversions of element types, and determinants.

Clip, Max and Min become Relax's binary maximum and minimum, which layout conversion and fusion know.  Their lowering
propagates NaN (`compiler/graph/lowering_rules.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import add
from typing import Any

import numpy as np
from tvm import relax, tirx

from kintune.core.dtypes import numpy_dtype
from kintune.models.converters.node import Node, like
from kintune.models.converters.registration import FLOATS, MICROSOFT, OnnxOperator
from kintune.models.elimination import determinant, inverse
from kintune.models.expressions import HALVES, constant_of, dtype_of, elementwise, is_float, is_integer, shape_of
from kintune.models.formulas import Real, choose, whole_power

__all__ = ["OPERATORS"]

_MOST_FACTORS = 8  # largest integer exponent of a power that becomes products
_MOST_ROWS = 4  # most rows of a determinant that is expanded by minors


def _clip_to_attributes(node: Node) -> relax.Expr:
    given = [node.attributes.get(name) for name in ("min", "max")]
    data = node.required(0)
    return _clipped(node, [None if bound is None else like(bound, data) for bound in given])


def _clip(node: Node) -> relax.Expr:
    return _clipped(node, [node.operand(1), node.operand(2)])


def _clipped(node: Node, limits: Sequence[relax.Expr | None]) -> relax.Expr:
    """Maximum, then minimum; a constant bound that has no effect (infinite, NaN, or the type's limit) is left out.

    A bound that is not given is the least or the greatest finite number, and one that is NaN bounds nothing, as in
    onnxruntime.
    """
    data = node.required(0)
    for limit, operator, least in zip(limits, (relax.op.maximum, relax.op.minimum), (True, False), strict=True):
        if limit is None and dtype_of(data).startswith("float"):
            finite = np.finfo(dtype_of(data))
            limit = like(float(finite.min if least else finite.max), data)
        if limit is not None and not _bounds_nothing(limit, least):
            if is_float(dtype_of(limit)) and constant_of(limit) is None:
                unknown = node.emit(relax.op.isnan(node.wide(limit)))
                limit = node.emit(relax.op.where(unknown, like(-math.inf if least else math.inf, limit), limit))
            data = node.emit(operator(data, limit))
    return data


def _bounds_nothing(limit: relax.Expr, least: bool) -> bool:
    value = constant_of(limit)
    if value is None:
        return False
    if is_float(dtype_of(limit)):
        number = float(value.reshape(-1)[0])
        return bool(np.isnan(number)) or number == (-np.inf if least else np.inf)
    limits = np.iinfo(value.dtype)
    return int(value.reshape(-1)[0]) == (limits.min if least else limits.max)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[[Node], relax.Expr]:
    """One operator between all operands, broadcasting."""

    def convert(node: Node) -> relax.Expr:
        operands = [operand for operand in node.operands if operand is not None]
        return functools.reduce(lambda left, right: node.emit(function(left, right)), operands)

    return convert


def _mean(node: Node) -> relax.Expr:
    total = _folded(relax.op.add)(node)
    return relax.op.divide(total, like(len(node.operands), total)) if len(node.operands) > 1 else total


def _legacy(node: Node) -> tuple[relax.Expr, relax.Expr]:
    """The two operands; before operator set 7, `axis` may say at which axis of the first one the second one begins."""
    left, right = node.required(0), node.required(1)
    axis = node.attributes.get("axis")
    if node.opset < 7 and node.attributes.get("broadcast", 0) and axis is not None:
        shape = shape_of(right)
        after = len(shape_of(left)) - int(axis) % len(shape_of(left)) - len(shape)
        right = node.emit(relax.op.reshape(right, [*shape, *[1] * after]))
    return left, right


def _binary(operator: Callable[[Any, Any], Any]) -> Callable[[Node], relax.Expr]:
    return lambda node: operator(*_legacy(node))


def _divide(node: Node) -> relax.Expr:
    """The quotient; that of integers is rounded towards zero."""
    left, right = _legacy(node)
    if is_float(dtype_of(left)):
        return relax.op.divide(left, right)
    quotient = node.emit(elementwise(node.builder, tirx.truncdiv, "quotient", left, _safe_divisor(node, right)))
    if not _may_overflow(node, right):
        return quotient
    x = Real(node, left)
    return choose(Real(node, right).equal(-1), 0 - x, Real(node, quotient)).value


def _safe_divisor(node: Node, right: relax.Expr) -> relax.Expr:
    """Integer divisors by which a division does not trap, which would end the process: 1 replaces 0.

    Both branches of an If are computed, even where its condition guards a division.  There, 1 also replaces -1, since
    the division of the least number of a type by -1 traps; elsewhere, `guard_divisions` has done that.

    Raises:
        ValueError: when a constant divisor outside of branches contains 0.
    """
    divisor = constant_of(right)
    if not node.conditional and divisor is not None:
        if not divisor.all():
            raise ValueError("it divides integers by 0")
        return right
    trapping = [0] if divisor is None or not divisor.all() else []
    for value in [*trapping, *([-1] if _may_overflow(node, right) else [])]:
        right = choose(Real(node, right).equal(value), 1, Real(node, right)).value
    return right


def _may_overflow(node: Node, right: relax.Expr) -> bool:
    """Whether signed integers may be divided by -1 in a branch."""
    divisor = constant_of(right)
    signed = dtype_of(right).startswith("int")
    return node.conditional and signed and (divisor is None or bool((divisor == -1).any()))


def _modulo(node: Node) -> relax.Expr:
    """The remainder, with the sign of the dividend (`fmod`) or of the divisor."""
    left, right = node.required(0), node.required(1)
    if not is_float(dtype_of(left)):
        right = _safe_divisor(node, right)
        if dtype_of(left) in ("int32", "int64") and not node.attributes.get("fmod", 0):
            return relax.op.floor_mod(left, right)
        function = tirx.truncmod if node.attributes.get("fmod", 0) else tirx.floormod
        return elementwise(node.builder, function, "remainder", left, right)
    own = dtype_of(left)
    wide = "float32" if own in HALVES else own
    left, right = node.cast(left, wide), node.cast(right, wide)
    remainder = Real(node, node.emit(elementwise(node.builder, _float_remainder, "remainder", left, right)))
    if not node.attributes.get("fmod", 0):
        divisor = Real(node, right)
        remainder = choose(remainder * divisor < 0, remainder + divisor, remainder)
    return node.cast(remainder.value, own)


def _float_remainder(dividend: Any, divisor: Any) -> Any:
    """The remainder by the C library's `fmod`, which is exact."""
    dtype = str(dividend.ty)
    return tirx.call_pure_extern(dtype, "fmodf" if dtype == "float32" else "fmod", dividend, divisor)


def _power(node: Node) -> relax.Expr:
    """A power, in the base's element type.

    Powers with a constant integer exponent from 1 to 8 become products.  Other powers of integers are computed in
    float64, as in onnxruntime.
    """
    base, exponent = _legacy(node)
    own = dtype_of(base)
    value = constant_of(exponent)
    if value is not None and value.size == 1:
        number = float(value.reshape(-1)[0])
        shape = np.broadcast_shapes(shape_of(base), value.shape)
        if number.is_integer() and 1 <= number <= _MOST_FACTORS and shape == shape_of(base):
            return whole_power(Real(node, base), int(number)).value
        if number == 0.5 and is_float(own) and shape == shape_of(base):
            return relax.op.sqrt(base)
    wide = {"float32": "float32", "float64": "float64"}.get(own, "float32" if own in HALVES else "float64")
    result = node.emit(relax.op.power(node.cast(base, wide), node.cast(exponent, wide)))
    return node.cast(result, own)


def _unary(operator: Callable[[Any], Any]) -> Callable[[Node], relax.Expr]:
    return lambda node: operator(node.required(0))


def _real(operator: Callable[[Any], Any]) -> Callable[[Node], relax.Expr]:
    """A converter of a function that is computed in float32 for half precision."""
    return lambda node: node.cast(node.emit(operator(node.wide(node.required(0)))), dtype_of(node.required(0)))


def _sign(node: Node) -> relax.Expr:
    """-1 or 1; zero and NaN are returned as they are."""
    x = Real(node, node.required(0))
    return (x.minimum(1) if x.dtype.startswith("uint") else choose(x > 0, 1, choose(x < 0, -1, x))).value


def _negative(node: Node) -> relax.Expr:
    x = Real(node, node.required(0))
    return (-x if is_float(x.dtype) else 0 - x).value


def _absolute(node: Node) -> relax.Expr:
    x = Real(node, node.required(0))
    if x.dtype.startswith("uint"):
        return x.value
    return (abs(x) if is_float(x.dtype) else x.maximum(0 - x)).value


def _is_infinite(node: Node) -> relax.Expr:
    data = node.required(0)
    kinds = [
        node.emit(relax.op.equal(data, like(value, data)))
        for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf))
        if node.attributes.get(name, 1)
    ]
    if not kinds:
        return relax.const(np.zeros(shape_of(data), np.bool_), "bool")
    return kinds[0] if len(kinds) == 1 else relax.op.logical_or(*kinds)


def _equal(node: Node) -> relax.Expr:
    """Equality; booleans are compared as bytes, since TVM does not compare booleans."""
    return relax.op.equal(*(node.cast(each, "uint8") if dtype_of(each) == "bool" else each for each in _legacy(node)))


def _shift(node: Node) -> relax.Expr:
    shift = relax.op.left_shift if node.attributes.get("direction") == "LEFT" else relax.op.right_shift
    return shift(node.required(0), node.required(1))


def _bit_cast(node: Node) -> relax.Expr:
    """The same bits as another element type of the same width."""
    data, dtype = node.required(0), node.element_type("to")
    if numpy_dtype(dtype).itemsize != numpy_dtype(dtype_of(data)).itemsize or "bool" in (dtype, dtype_of(data)):
        raise ValueError(f"{dtype_of(data)} cannot be read as {dtype}")
    if dtype == dtype_of(data):
        return data
    return elementwise(node.builder, lambda x: tirx.reinterpret(dtype, x), "bit_cast", data)


def _cast(node: Node) -> relax.Expr:
    return _to(node, node.element_type("to"))


def _cast_like(node: Node) -> relax.Expr:
    return _to(node, dtype_of(node.required(1)))


def _to(node: Node, dtype: str) -> relax.Expr:
    data = node.required(0)
    narrow = dtype.startswith(("float8", "float6_", "float4_")) or dtype.endswith(("int4", "int2"))
    if narrow or not (dtype == "bool" or is_float(dtype) or is_integer(dtype)):
        raise ValueError(f"element type {dtype} is not supported")
    return data if dtype == dtype_of(data) else relax.op.astype(data, dtype)


def _determinant(node: Node) -> relax.Expr:
    data = node.required(0)
    *batch, rows, columns = shape_of(data)
    if rows != columns or 0 in shape_of(data):
        raise ValueError(f"the determinant of {rows}x{columns} elements is not supported")
    whole = node.emit(relax.op.reshape(data, [math.prod(batch), rows, rows]))
    if rows > _MOST_ROWS:
        return relax.op.reshape(determinant(node, whole), batch)
    flat = [
        [
            Real(node, node.reshape(node.slice(node.slice(whole, 1, i, i + 1), 2, j, j + 1), [math.prod(batch)]))
            for j in range(rows)
        ]
        for i in range(rows)
    ]
    return relax.op.reshape(_expanded(flat, 0, tuple(range(rows))).value, batch)


def _inverse(node: Node) -> relax.Expr:
    """The inverses of square matrices; half precision is computed in float32."""
    data = node.wide(node.required(0))
    *batch, rows, columns = shape_of(data)
    if rows != columns or 0 in shape_of(data):
        raise ValueError(f"the inverse of {rows}x{columns} elements is not supported")
    found = inverse(node, node.reshape(data, [math.prod(batch), rows, rows]))
    return node.cast(node.reshape(found, shape_of(data)), dtype_of(node.required(0)))


def _expanded(elements: list[list[Real]], row: int, columns: tuple[int, ...]) -> Real:
    """The determinant of the rows from `row` on and these columns, by expansion along row `row`."""
    if len(columns) == 1:
        return elements[row][columns[0]]
    minors = [_expanded(elements, row + 1, columns[:at] + columns[at + 1 :]) for at in range(len(columns))]
    terms = [elements[row][column] * minor for column, minor in zip(columns, minors, strict=True)]
    return functools.reduce(add, [-term if at % 2 else term for at, term in enumerate(terms)])


OPERATORS = (
    OnnxOperator("Abs", _absolute),
    OnnxOperator("Acos", _real(relax.op.acos)),
    OnnxOperator("Acosh", _real(relax.op.acosh)),
    OnnxOperator("Add", _binary(relax.op.add)),
    OnnxOperator("And", _binary(relax.op.logical_and)),
    OnnxOperator("Asin", _real(relax.op.asin)),
    OnnxOperator("Asinh", _real(relax.op.asinh)),
    OnnxOperator("Atan", _real(relax.op.atan)),
    OnnxOperator("Atanh", _real(relax.op.atanh)),
    OnnxOperator("BitCast", _bit_cast),
    OnnxOperator("BitShift", _shift),
    OnnxOperator("BitwiseAnd", _binary(relax.op.bitwise_and)),
    OnnxOperator("BitwiseNot", _unary(relax.op.bitwise_not)),
    OnnxOperator("BitwiseOr", _binary(relax.op.bitwise_or)),
    OnnxOperator("BitwiseXor", _binary(relax.op.bitwise_xor)),
    OnnxOperator("Cast", _cast),
    OnnxOperator("CastLike", _cast_like),
    OnnxOperator("Ceil", _unary(relax.op.ceil)),
    OnnxOperator("Clip", _clip_to_attributes),
    OnnxOperator("Clip", _clip, since=11),
    OnnxOperator("Cos", _real(relax.op.cos)),
    OnnxOperator("Cosh", _real(relax.op.cosh)),
    OnnxOperator("Det", _determinant),
    OnnxOperator("Div", _divide),
    OnnxOperator("Equal", _equal),
    OnnxOperator("Erf", _real(relax.op.erf)),
    OnnxOperator("Exp", _real(relax.op.exp)),
    OnnxOperator("Floor", _unary(relax.op.floor)),
    OnnxOperator("Greater", _binary(relax.op.greater)),
    OnnxOperator("GreaterOrEqual", _binary(relax.op.greater_equal)),
    OnnxOperator("Inverse", _inverse, domain=MICROSOFT, types={0: FLOATS}),
    OnnxOperator("IsInf", _is_infinite),
    OnnxOperator("IsNaN", lambda node: relax.op.isnan(node.wide(node.required(0)))),
    OnnxOperator("Less", _binary(relax.op.less)),
    OnnxOperator("LessOrEqual", _binary(relax.op.less_equal)),
    OnnxOperator("Log", _real(relax.op.log)),
    OnnxOperator("Max", _folded(relax.op.maximum)),
    OnnxOperator("Mean", _mean),
    OnnxOperator("Min", _folded(relax.op.minimum)),
    OnnxOperator("Mod", _modulo),
    OnnxOperator("Mul", _binary(relax.op.multiply)),
    OnnxOperator("Neg", _negative),
    OnnxOperator("Not", _unary(relax.op.logical_not)),
    OnnxOperator("Or", _binary(relax.op.logical_or)),
    OnnxOperator("Pow", _power),
    OnnxOperator("Reciprocal", lambda node: (1 / Real(node, node.required(0))).value),
    OnnxOperator("Round", _unary(relax.op.round)),
    OnnxOperator("Sigmoid", _real(relax.op.sigmoid)),
    OnnxOperator("Sign", _sign),
    OnnxOperator("Sin", _real(relax.op.sin)),
    OnnxOperator("Sinh", _real(relax.op.sinh)),
    OnnxOperator("Sqrt", _real(relax.op.sqrt)),
    OnnxOperator("Sub", _binary(relax.op.subtract)),
    OnnxOperator("Sum", _folded(relax.op.add)),
    OnnxOperator("Tan", _real(relax.op.tan)),
    OnnxOperator("Tanh", _real(relax.op.tanh)),
    OnnxOperator("Xor", _binary(relax.op.logical_xor)),
)
