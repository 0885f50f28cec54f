"""Rules by which some operators are lowered, in place of TVM's own; `own_rules` sets them.

`elementary_rules`: TVM calls the C library for each element of an `exp`, `erf`, `tanh` or `sigmoid`; for a layer of
BERT with its error function, that takes two fifths of the time.  Here they become polynomials, which are computed for
whole vectors.  Infinities and NaN are handled as in the C library.  `benchmarks/elementary.py` fits the coefficients
and prints the largest errors, some 1e-7.  The exponential is reduced to a power of two and a remainder as in Cody and
Waite, "Software Manual for the Elementary Functions" (1980), chapter 6.

`nan_rules`: maxima and minima propagate NaN, as in other runtimes.  Compiled code for `max(a, b)` returns `b` if either
is NaN, as the instruction of x86 does.  So a constant bound becomes the first operand, which costs nothing.  If both
operands are computed, the first is tested for NaN.

TVM's simplifier takes floating-point numbers for real ones: `x - x` and `x * 0` become 0, and `x == x` true.  So where
an operand is compared with, or taken from, itself, or multiplied by a constant 0, the result is written as a test for
NaN and infinities.

`nan_tests`: TVM takes vectors apart where an element is tested for NaN, as in such a maximum.  LLVM has an
instruction for the whole vector, with which a vectorised maximum takes about an eighth of the time.

`quotient_rules`: quantisation divides by the scale and rounds once, as in other runtimes.  TVM turns a division by a
constant into a product with its inverse, which is rounded; so a value halfway between two integers may be rounded to
the wrong one.  Therefore the scale is written as the integer with its bits, which is reinterpreted as a float: TVM's
simplifier does not see a constant there, and the reinterpretation costs nothing.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops import binary
from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const

from kintune.compiler.graph.extreme_rules import EXTREMES, is_nan
from kintune.compiler.hidden_values import bindable
from kintune.runtime.tvm_state import OperatorAttribute

__all__ = ["elementary_rules", "nan_rules", "nan_tests", "quotient_rules"]

_LEGALISE = "FLegalize"
_LOWER = ("llvm.FLowerIntrinsic", "default.FLowerIntrinsic")  # TVM's own rules; the first that exists is used
_VECTORISES = "TVectorizable"
_TYPE = "float32"

_EXP = (
    1.0, 1.0, 0.49999991059303284, 0.16666419804096222, 0.04166822507977486, 0.008374815806746483,
    0.0013836821308359504,
)  # fmt: skip

_LARGEST, _SMALLEST = 88.72283172607422, -87.33654022216797  # between these, the exponential is a normal float32
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4

_ERF = (
    0.36073681712150574, -0.18010911345481873, 0.13408227264881134, -0.10915932059288025, 0.09063805639743805,
    -0.07425139844417572, 0.05812297761440277, -0.04225587099790573, 0.030552111566066742, -0.023070864379405975,
    0.01284931879490614, -0.003389945952221751, 0.00298604229465127, -0.004401788115501404, 0.0017727607628330588,
)  # fmt: skip
_ERF_LIMIT = 3.92

_TANH = (
    1.0, -0.3333325982093811, 0.13331127166748047, -0.05372105911374092, 0.02059096284210682, -0.005659963935613632,
)  # fmt: skip
_TANH_LIMIT = 0.625


def elementary_rules() -> Iterator[OperatorAttribute]:
    """The rules that lower elementary functions of float32 to vector arithmetic.

    Functions for which the C library is called are computed element by element where the compiler has made vectors.
    It is called for `atanh`, too, of which TVM makes a logarithm of nearly 1, so that small values lose all digits.
    """
    yield OperatorAttribute("tirx.atanh", "llvm.FLegalize", None)
    for name, function in {**dict.fromkeys(_OF_SINGLE_ELEMENTS), **_FUNCTIONS}.items():
        yield OperatorAttribute(name, _VECTORISES, True)
        yield OperatorAttribute(name, _LOWER[0], _rule(name, function))


def nan_tests(*, by_vectors: bool) -> OperatorAttribute:
    """Whether whole vectors are tested for NaN, which CUDA has no instruction for."""
    return OperatorAttribute("tirx.isnan", _VECTORISES, by_vectors or None)


def _rule(name: str, function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A rule that lowers calls on float32, and vectors of it, by `function`, and others by TVM's own rule.

    Vectors of other types are taken apart if that rule does not change calls on them.
    """
    usual = next(filter(None, map(tvm.ir.Op.get(name).get_attr, _LOWER)))

    def lower(call: Any) -> Any:
        (x,) = call.args
        scalar, _, lanes = str(call.ty).partition("x")
        if function is not None and scalar == _TYPE:
            return _let("x", x, function)
        found = usual(call)
        if not lanes or not found.same_as(call):
            return found
        places = list(range(int(lanes)))
        return _let("lanes", x, lambda vector: tirx.Shuffle([_at_lane(name, vector, at) for at in places], places))

    return lower


def _at_lane(name: str, vector: Any, lane: int) -> Any:
    """The function of one element of a vector."""
    element = tirx.Shuffle([vector], [lane])
    return tirx.call_intrin(str(element.ty), name, element)


def _exp(x: Any) -> Any:
    clipped = _clipped(x, _SMALLEST, _LARGEST)
    value = _let("clipped", clipped, lambda c: _let("power", _power_of(c), lambda n: _exp_of_parts(c, n)))
    return tirx.Select(x > _like(x, _LARGEST), _like(x, math.inf), value)


def _power_of(x: Any) -> Any:
    return tirx.floor(x * _like(x, 1 / math.log(2)) + _like(x, 0.5))


def _exp_of_parts(x: Any, power: Any) -> Any:
    """e^x, where `power` is the exponent of the nearest power of two.

    Half of the result is computed first, since 2^power itself may be too large for float32.  A power that is not a
    number is none that can be made an integer: LLVM would compute nothing at all where it knows of one.
    """
    rest = x - power * _like(x, _LN2_HIGH) - power * _like(x, _LN2_LOW)
    whole = str(x.ty).replace("float", "int")
    number = tirx.max(power, _like(power, -126.0))  # -126 for NaN, which is the first operand
    exponent = (tirx.Cast(whole, number) + _constant(whole, 126)) << _constant(whole, 23)
    half = _let("rest", rest, lambda r: _horner(_EXP, r)) * tirx.reinterpret(str(x.ty), exponent)
    return half * _like(x, 2.0)


def _erf(x: Any) -> Any:
    def odd(c: Any) -> Any:
        return _let("s", c * c * _like(c, 2 / _ERF_LIMIT**2) - _like(c, 1.0), lambda s: c * _horner(_ERF, s))

    return _clipped(_let("clipped", _clipped(x, -_ERF_LIMIT, _ERF_LIMIT), odd), -1.0, 1.0)


def _tanh(x: Any) -> Any:
    small = _let("square", x * x, lambda square: x * _horner(_TANH, square))
    size = tirx.Select(x < _like(x, 0.0), _like(x, 0.0) - x, x)
    large = _like(x, 1.0) - _like(x, 2.0) / (_let("doubled", size + size, _exp) + _like(x, 1.0))
    signed = _let("large", large, lambda value: tirx.Select(x < _like(x, 0.0), _like(x, 0.0) - value, value))
    return tirx.Select(size < _like(x, _TANH_LIMIT), small, signed)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": _exp,
    "tirx.erf": _erf,
    "tirx.tanh": _tanh,
}
"""The functions that are replaced; TVM's own rule lowers a sigmoid to an exponential."""

_OF_SINGLE_ELEMENTS = ("tirx.sinh", "tirx.cosh")
"""Functions that TVM makes vectors of, and for which it has no rule but calls of the C library."""


def _clipped(x: Any, low: float, high: float) -> Any:
    """`x` clamped to bounds; NaN stays NaN, since `x` is the second operand of the comparisons."""
    return tirx.max(_like(x, low), tirx.min(_like(x, high), x))


def _let(name: str, value: Any, body: Callable[[Any], Any]) -> Any:
    """`body` applied to a new variable that is bound to `value`.

    The result may be used only once in an expression, since it binds the variable.
    """
    variable = tirx.Var(name, str(value.ty))
    return tirx.Let(variable, bindable(value), body(variable))


def _horner(coefficients: Sequence[float], at: Any) -> Any:
    value: Any = _like(at, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * at + _like(at, coefficient)
    return value


def _like(x: Any, value: float) -> Any:
    """A constant of the type of `x`."""
    return _constant(str(x.ty), value)


def _constant(kind: str, value: float) -> Any:
    scalar, _, lanes = kind.partition("x")
    constant = tirx.const(value, scalar)
    return tirx.Broadcast(constant, int(lanes)) if lanes else constant


def nan_rules() -> Iterator[OperatorAttribute]:
    """The rules that legalise maxima, minima, clips and ReLUs so that they propagate NaN.

    And those for quotients by a constant 0, which are NaN or infinite, for products with it, for what is taken from, or
    compared with, itself, and for what differs: the compiler's own comparison finds that NaN does not.
    """
    for name, rule in (
        ("relax.divide", _quotient),
        ("relax.multiply", _product),
        ("relax.subtract", _of_itself(topi.subtract, lambda x: tirx.Select(_is_finite(x), _zero(x), _nan(x)))),
        ("relax.equal", _of_itself(topi.equal, lambda x: tirx.Not(is_nan(x)))),
        ("relax.not_equal", _unequal),
        ("relax.maximum", _pairwise(topi.maximum, tirx.max)),
        ("relax.minimum", _pairwise(topi.minimum, tirx.min)),
        ("relax.nn.relu", _relu),
        ("relax.clip", _clip),
        *EXTREMES.items(),
    ):
        yield OperatorAttribute(name, _LEGALISE, rule)


def _pairwise(function: Any, element: Callable[[Any, Any], Any]) -> Callable[..., relax.Expr]:
    usual = binary._binary(function)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not _is_float(call) or _is_number(left):
            return usual(builder, call)
        if _is_number(right):
            return usual(builder, relax.Call(call.op, [right, left], call.attrs, call.ty_args))
        name = function.__name__

        def both(a: Any, b: Any) -> Any:
            return _broadcast(a, b, element, name)

        return builder.call_te(both, left, right, primfunc_name_hint=name)

    return legalise


def _quotient(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    left, right = call.args
    if _is_float(call) and isinstance(right, tvm.ir.GenericConst):
        values = right.value.numpy()
        if values.size == 1 and not values.any():
            infinite = np.copysign(np.full_like(values, math.inf), values)
            return binary._binary(topi.multiply)(
                builder, relax.Call(call.op, [left, relax.const(infinite)], call.attrs)
            )
    return binary._binary(topi.divide)(builder, call)


def _product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    number, data = call.args if isinstance(call.args[0], tvm.ir.GenericConst) else reversed(call.args)
    if _is_float(call) and isinstance(number, tvm.ir.GenericConst):
        values = number.value.numpy()
        if values.size == 1 and not values.any() and int(number.ty.ndim) <= int(data.ty.ndim):
            return _each(builder, data, lambda x: tirx.Select(_is_finite(x), _zero(x), _nan(x)), "multiply")
    return binary._binary(topi.multiply)(builder, call)


def _of_itself(function: Any, element: Callable[[Any], Any]) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    """A rule for an operator of two operands, which says what it makes of an element twice."""
    usual = binary._binary(function)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not (isinstance(left, relax.Var) and left.same_as(right) and _is_float(left)):
            return usual(builder, call)
        return _each(builder, left, element, function.__name__)

    return legalise


def _each(builder: relax.BlockBuilder, data: relax.Expr, element: Callable[[Any], Any], name: str) -> relax.Expr:
    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: element(x(*i)), name=f"T_{name}", tag=topi.tag.ELEMWISE)

    return builder.call_te(compute, data, primfunc_name_hint=name)


def _unequal(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    left, right = call.args
    if not _is_float(left):
        return binary._binary(topi.not_equal)(builder, call)
    if isinstance(left, relax.Var) and left.same_as(right):
        return _each(builder, left, is_nan, "not_equal")
    numbers = [_is_number(each) for each in call.args]

    def different(x: Any, y: Any) -> Any:
        found = tirx.NE(x, y)
        for value, is_number in zip((x, y), numbers, strict=True):
            found = found if is_number else tirx.Or(found, is_nan(value))
        return found

    def both(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return _broadcast(a, b, different, "not_equal", keep_nan=False)

    return builder.call_te(both, left, right, primfunc_name_hint="not_equal")


def _broadcast(
    a: te.Tensor, b: te.Tensor, element: Callable[[Any, Any], Any], name: str, *, keep_nan: bool = True
) -> te.Tensor:
    """The element-wise result with broadcasting; with `keep_nan`, NaN where the first operand is NaN."""
    shape = np.broadcast_shapes(tuple(map(int, a.shape)), tuple(map(int, b.shape)))

    def at(tensor: te.Tensor, indices: Any) -> Any:
        own = indices[len(shape) - len(tensor.shape) :]
        return tensor(*(0 if int(size) == 1 else index for size, index in zip(tensor.shape, own, strict=True)))

    def compute(*indices: Any) -> Any:
        x, y = at(a, indices), at(b, indices)
        return tirx.Select(is_nan(x), x, element(x, y)) if keep_nan else element(x, y)

    return te.compute(shape, compute, name=f"T_{name}", tag=topi.tag.BROADCAST)


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def relu(x: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, x.dtype)
        return te.compute(x.shape, lambda *i: tirx.max(zero, x(*i)), name="compute", tag=topi.tag.ELEMWISE)

    return builder.call_te(relu, *call.args, primfunc_name_hint="relu")


def _clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def clip(x: te.Tensor, low: Any, high: Any) -> te.Tensor:
        least, most = (tirx.const(_bound(bound.value, str(x.dtype)), x.dtype) for bound in (low, high))
        return te.compute(
            x.shape, lambda *i: tirx.max(least, tirx.min(most, x(*i))), name="compute", tag=topi.tag.ELEMWISE
        )

    return builder.call_te(clip, *call.args, primfunc_name_hint="tir_clip")


def _bound(value: float, dtype: str) -> float:
    """A bound as a number of the element type: for integers, the nearest one that the type has."""
    if "int" not in dtype:
        return float(value)
    limits = np.iinfo(dtype)
    return int(min(max(value, int(limits.min)), int(limits.max)))


def _is_finite(value: Any) -> Any:
    wide = value if str(value.ty) in ("float32", "float64") else tirx.Cast("float32", value)
    return tirx.abs(wide) <= tirx.const(float(np.finfo(str(wide.ty)).max), str(wide.ty))


def _zero(value: Any) -> Any:
    return tirx.const(0.0, str(value.ty))


def _nan(value: Any) -> Any:
    return tirx.const(math.nan, str(value.ty))


def _is_float(call: relax.Expr) -> bool:
    return str(call.ty.dtype).startswith(("float", "bfloat"))


def _is_number(expression: relax.Expr) -> bool:
    """Whether an operand is a constant without NaN."""
    return (
        isinstance(expression, tvm.ir.GenericConst) and not np.isnan(expression.value.numpy().astype(np.float64)).any()
    )


_BITS = {"float32": ("<f", "<i", "int32"), "float64": ("<d", "<q", "int64")}


def quotient_rules() -> Iterator[OperatorAttribute]:
    """The rule that legalises quantisation to integers as an exact division by the scale."""
    usual = tvm.ir.Op.get("relax.quantize").get_attr(_LEGALISE)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        data, step, zero = call.args
        wanted = str(call.attrs.out_dtype)
        if "int" not in wanted or str(data.ty.dtype) not in _BITS or str(step.ty.dtype) != str(data.ty.dtype):
            return usual(builder, call)
        axis = int(call.attrs.axis) % int(data.ty.ndim) if int(data.ty.ndim) else 0

        def quantise(x: te.Tensor, by: Any, offset: Any) -> te.Tensor:
            def compute(*indices: Any) -> Any:
                steps = tirx.round(_divided(x[indices], _at(by, indices, axis)))
                moved = steps + _at(offset, indices, axis).astype(x.dtype)
                low, high = (tirx.Cast(x.dtype, bound(wanted)) for bound in (tirx.min_value, tirx.max_value))
                return tirx.max(low, tirx.min(high, moved)).astype(wanted)

            return te.compute(x.shape, compute, name="quantized")

        operands = (_try_convert_to_scalar_const(step), _try_convert_to_scalar_const(zero))
        return builder.call_te(quantise, data, *operands, primfunc_name_hint="quantize")

    yield OperatorAttribute("relax.quantize", _LEGALISE, legalise)


def _at(parameter: Any, indices: tuple[Any, ...], axis: int) -> Any:
    """The scale or zero point of an element: `parameter` is a number, a tensor of one element, or one along `axis`."""
    if not isinstance(parameter, te.Tensor):
        return parameter
    if all(int(extent) == 1 for extent in parameter.shape):
        return parameter[(0,) * len(parameter.shape)]
    return parameter[indices[axis]]


def _divided(value: Any, step: Any) -> Any:
    is_one = isinstance(step, tirx.FloatImm) and float(step.value) == 1.0
    return value if is_one else value / _opaque(step)


def _opaque(value: Any) -> Any:
    """A float constant written so that TVM's simplifier does not recognise it; other expressions as they are."""
    if not isinstance(value, tirx.FloatImm):
        return value
    kind = str(value.ty)
    number, integer, name = _BITS[kind]
    (bits,) = struct.unpack(integer, struct.pack(number, float(value.value)))
    return tirx.reinterpret(kind, tirx.const(bits, name))
