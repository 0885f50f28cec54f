"""Layout rules: how operators are computed on tensors that are stored in another axis order than the network's.

A rule takes a call and returns the equivalent expression on the stored operands, with the order of its result; or None,
where the operands must be brought into the network's order instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
from tvm import relax

from kintune.compiler.graph import permutations
from kintune.compiler.graph.layout_views import LayoutResult, TensorView, TensorViews
from kintune.compiler.graph.rewriting import (
    CALL_KERNEL,
    convolution_like,
    integers_in,
    layouts_of,
    operator_of,
    static_shape,
    transposed_axes,
)
from kintune.models.expressions import REPLACE_NAN
from kintune.models.interpolation import RESIZE

__all__ = ["BROADCAST", "RULES", "UNARY"]

Rule = Callable[[TensorViews, relax.Call], "LayoutResult | None"]
Order = tuple[int, ...]

_NHWC: Order = (0, 3, 1, 2)
_HWIO: Order = (3, 2, 0, 1)
_NWC: Order = (0, 2, 1)
_WIO: Order = (2, 1, 0)
_LAST = ("NHWC", "HWIO", "NHWC")  # the layouts of convolutions with channels last
UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "astype", "atan", "atanh", "bitwise_not", "ceil", "clip", "cos", "cosh",
    "erf", "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "nn.gelu", "nn.gelu_tanh",
    "nn.leakyrelu", "nn.relu", "nn.selu", "nn.silu", "nn.softplus", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
BROADCAST = (
    "add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "floor_divide", "floor_mod",
    "greater", "greater_equal", "left_shift", "less", "less_equal", "log_add_exp", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "mod", "multiply", "not_equal", "power", "right_shift", "subtract", "where",
)  # fmt: skip


def _on_view(rule: Callable[[TensorViews, TensorView, relax.Call], LayoutResult | None]) -> Rule:
    """A rule for calls whose first operand is stored in another axis order than the network's; it gets its view."""

    def apply(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
        view = tensors.view(call.args[0])
        return None if view is None or view.is_plain else rule(tensors, view, call)

    return apply


def _call(call: relax.Call, *arguments: relax.Expr) -> relax.Call:
    return relax.Call(call.op, list(arguments), call.attrs, call.ty_args)


@_on_view
def _unary(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    return view.keeping(_call(call, view.stored, *call.args[1:]))


def _views(tensors: TensorViews, operands: Iterable[relax.Expr]) -> list[TensorView]:
    """The views of operands; empty where one of them has none."""
    views = [tensors.view(operand) for operand in operands]
    known = [view for view in views if view is not None]
    return known if len(known) == len(views) else []


def _best_order(tensors: TensorViews, known: Sequence[TensorView], rank: int) -> tuple[Order, bool] | None:
    """The order in which the fewest elements must be moved to combine tensors, and whether it is firm.

    Constants are moved when the network is built.  None when that is the network's own order.
    """
    plain, views = permutations.identity(rank), [view for view in known if not _is_constant(view.stored)]
    orders: dict[Order, bool] = {}
    for view in views:
        if len(view.shape) == rank and not view.is_plain:
            orders[view.order] = orders.get(view.order, False) or view.firm
    if not orders:
        return None

    def moved(order: Order) -> int:
        return sum(math.prod(view.shape) for view in views if not tensors.has(view, order))

    best = min(orders, key=lambda order: (moved(order), not orders[order]))
    least, others = moved(best), moved(plain)
    if others < least or (others == least and not orders[best]):
        return None
    return best, orders[best]


def _broadcast(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    shape, known = static_shape(call), _views(tensors, call.args)
    chosen = None if shape is None else _best_order(tensors, known, len(shape))
    if chosen is None:
        return None
    order, firm = chosen
    operands = [view.stored if _is_in_any_order(view) else tensors.arrange(view, order) for view in known]
    return LayoutResult(_call(call, *operands), order, firm)


def _is_in_any_order(view: TensorView) -> bool:
    return not view.shape or (math.prod(view.shape) == 1 and _is_constant(view.stored))


def _is_constant(expression: relax.Expr) -> bool:
    return isinstance(expression, tvm.ir.GenericConst)


def _transpose(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = tensors.view(call.args[0])
    if view is None or _is_constant(view.stored):
        return None
    return LayoutResult(view.stored, permutations.compose(view.order, transposed_axes(call)), view.firm)


@_on_view
def _reshape(tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    wanted = static_shape(call)
    if wanted is None:
        return None
    data, order = view.stored, permutations.reshaped(view.shape, view.order, wanted)
    if order is None:
        before = permutations.regrouped(view.shape, view.order, wanted) if view.firm else None
        order = None if before is None else permutations.reshaped(view.shape, before, wanted)
        if before is None or order is None or order == permutations.identity(len(order)):
            return None
        data = tensors.arrange(view, before)
    return LayoutResult(relax.op.reshape(data, permutations.stored(wanted, order)), order, view.firm)


@_on_view
def _reduce(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    axes = range(len(view.shape)) if call.attrs.axis is None else call.attrs.axis
    return _reduced(view, call, sorted(map(view.place, axes)), axes)


def _reduced(view: TensorView, call: relax.Call, places: Any, axes: Iterable[int]) -> LayoutResult:
    """A reduction over `axes` of the network's tensor, which are `places` of the stored one."""
    found = getattr(relax.op, _short(call))(view.stored, places, bool(call.attrs.keepdims))
    if call.attrs.keepdims:
        return view.keeping(found)
    return LayoutResult(
        found, permutations.reduced(view.order, [int(axis) % len(view.shape) for axis in axes]), view.firm
    )


def _short(call: relax.Call) -> str:
    return operator_of(call).removeprefix("relax.")


@_on_view
def _arg_reduce(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    if call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis)
    return _reduced(view, call, view.place(axis), [axis])


def _along(build: Callable[[relax.Call, relax.Expr, int], relax.Expr]) -> Rule:
    """An operator along one axis, whose result has the operand's axes."""

    def rule(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
        if call.attrs.axis is None:
            return None
        return view.keeping(build(call, view.stored, view.place(call.attrs.axis)))

    return _on_view(rule)


def _scan(call: relax.Call, data: relax.Expr, axis: int) -> relax.Expr:
    return getattr(relax.op, _short(call))(data, axis, call.attrs.dtype, call.attrs.exclusive)


def _split(call: relax.Call, data: relax.Expr, axis: int) -> relax.Expr:
    parts = call.attrs.indices_or_sections
    sections = int(parts) if isinstance(parts, int | tvm.tirx.IntImm) else [int(at) for at in parts]
    return relax.op.split(data, sections, axis)


def _concat(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    (group,) = call.args
    if not isinstance(group, relax.Tuple):
        return None
    known = _views(tensors, group.fields)
    rank = len(known[0].shape) if known else 0
    chosen = _best_order(tensors, known, rank)
    if chosen is None or call.attrs.axis is None:
        return None
    order, firm = chosen
    fields = [tensors.arrange(view, order) for view in known]
    return LayoutResult(relax.op.concat(fields, order[int(call.attrs.axis) % rank]), order, firm)


@_on_view
def _strided_slice(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    axes = integers_in(call.args[1])
    if axes is None:
        return None
    moved = relax.Tuple([relax.prim_value(view.place(axis)) for axis in axes])
    return view.keeping(_call(call, view.stored, moved, *call.args[2:]))


@_on_view
def _take(tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    indices = static_shape(call.args[1])
    if indices is None or len(indices) > 1 or call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(view.shape)
    found = relax.op.take(view.stored, tensors.operand(call.args[1]), view.order[axis], call.attrs.mode)
    return LayoutResult(found, view.order if indices else permutations.reduced(view.order, [axis]), view.firm)


@_on_view
def _pad(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    widths = [int(width) for width in call.attrs.pad_width]
    moved = [width for axis in permutations.inverse(view.order) for width in widths[2 * axis : 2 * axis + 2]]
    return view.keeping(relax.op.nn.pad(view.stored, moved, str(call.attrs.pad_mode), float(call.attrs.pad_value)))


@_on_view
def _tile(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    if len(call.attrs.repeats) != len(view.shape):
        return None
    repeats = [int(call.attrs.repeats[axis]) for axis in permutations.inverse(view.order)]
    return view.keeping(relax.op.tile(view.stored, repeats))


@_on_view
def _broadcast_to(_tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    wanted = static_shape(call)
    if wanted is None or len(wanted) != len(view.shape):
        return None
    return view.keeping(relax.op.broadcast_to(view.stored, permutations.stored(wanted, view.order)))


def _conv2d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data, weight = tensors.view(call.args[0]), tensors.view(call.args[1])
    if data is None or weight is None or layouts_of(call) != ("NCHW", "OIHW", "NCHW"):
        return None
    padding = tuple(map(int, call.attrs.padding))
    is_column = data.shape[2] > 1 == data.shape[3] == weight.shape[3]
    if is_column and not any(padding[1::2]):
        return _along_a_row(tensors, call, (data, _NHWC), (weight, _HWIO), padding[::2])
    operands = tensors.arrange(data, _NHWC), tensors.arrange(weight, _HWIO)
    return LayoutResult(convolution_like(call, *operands, layouts=_LAST), _NHWC)


def _conv1d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data, weight = tensors.view(call.args[0]), tensors.view(call.args[1])
    if data is None or weight is None or layouts_of(call) != ("NCW", "OIW", "NCW"):
        return None
    return _along_a_row(tensors, call, (data, _NWC), (weight, _WIO), tuple(map(int, call.attrs.padding)))


def _along_a_row(
    tensors: TensorViews,
    call: relax.Call,
    data: tuple[TensorView, Order],
    weight: tuple[TensorView, Order],
    padding: Sequence[int],
) -> LayoutResult | None:
    """A convolution along the axis behind the channels as one of images of one row, for which there are programs.

    `data` and `weight` are given with their orders with channels last; a further axis has one element.  `padding` has
    the widths before and after.
    """
    a, shape = call.attrs, static_shape(call)
    (view, order), (filters, filters_order) = data, weight
    batch, channels, extent = view.shape[:3]
    outputs, depth, taps = filters.shape[:3]
    before, after = padding
    found = relax.op.nn.conv2d(
        tensors.reshaped(view, order, (batch, 1, extent, channels)),
        tensors.reshaped(filters, filters_order, (1, taps, depth, outputs)),
        (1, int(a.strides[0])),
        (0, before, 0, after),
        (1, int(a.dilation[0])),
        a.groups,
        *_LAST,
        a.out_dtype,
    )
    return None if shape is None else LayoutResult(found, order, stored=permutations.stored(shape, order))


def _channels_last(tensors: TensorViews, call: relax.Call, layout: str = "NCHW") -> relax.Expr | None:
    """The operand of a pooling or resizing operator of a layout if it is stored with its channels last, else None."""
    view, order = tensors.view(call.args[0]), _NHWC if layout == "NCHW" else _NWC
    if view is None or view.is_plain or len(view.shape) != len(order) or call.attrs.layout != layout:
        return None
    return tensors.arrange(view, order) if view.lies_in(order) else None


def _pool(layout: str, last: str, order: Order) -> Rule:
    """Pooling of tensors of a layout, which are pooled in the layout `last`, an order of theirs."""

    def rule(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
        data, a = _channels_last(tensors, call, layout), call.attrs
        if data is None or a.out_layout != layout:
            return None
        pool = getattr(relax.op.nn, _short(call).removeprefix("nn."))
        around = a.pool_size, a.strides, a.padding, a.dilation, a.ceil_mode, a.count_include_pad
        return LayoutResult(pool(data, *around, last, last), order)

    return rule


def _adaptive_pool2d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data = _channels_last(tensors, call)
    if data is None or call.attrs.out_layout != "NCHW":
        return None
    return LayoutResult(relax.op.nn.adaptive_avg_pool2d(data, call.attrs.output_size, "NHWC", "NHWC"), _NHWC)


def _resize2d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data = _channels_last(tensors, call)
    if data is None:
        return None
    a = call.attrs
    modes = a.method, a.coordinate_transformation_mode, a.rounding_method
    numbers = a.cubic_alpha, a.cubic_exclude, a.extrapolation_value
    roi = tuple(float(bound) for bound in a.roi)
    return LayoutResult(relax.op.image.resize2d(data, call.args[1], roi, "NHWC", *modes, *numbers, a.out_dtype), _NHWC)


@_on_view
def _normalise(tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    """A norm whose scale and offset are along its channels, or along the normalised axes."""
    a = call.attrs
    axes = [view.place(axis) for axis in a.axes]
    operands = [tensors.operand(argument) for argument in call.args[1:]]
    name = _short(call).removeprefix("nn.")
    if name in ("layer_norm", "rms_norm") and axes != sorted(axes):
        return None
    if name == "rms_norm":
        return view.keeping(relax.op.nn.rms_norm(view.stored, *operands, axes, a.epsilon))
    last: tuple[Any, ...] = (axes, a.epsilon, a.center, a.scale)
    if name != "layer_norm":
        groups = (a.num_groups,) if name == "group_norm" else ()
        last = (*groups, view.place(a.channel_axis), *last)
    return view.keeping(getattr(relax.op.nn, name)(view.stored, *operands, *last))


@_on_view
def _prelu(tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    return view.keeping(relax.op.nn.prelu(view.stored, tensors.operand(call.args[1]), view.place(call.attrs.axis)))


@_on_view
def _quantise(tensors: TensorViews, view: TensorView, call: relax.Call) -> LayoutResult | None:
    steps = [tensors.operand(argument) for argument in call.args[1:]]
    place, dtype = view.place(call.attrs.axis), str(call.attrs.out_dtype)
    return view.keeping(getattr(relax.op, _short(call))(view.stored, *steps, place, dtype))


def _kernel(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    """A kernel of an importer that works along an axis: a copy of it for the order in which the operand is stored."""
    group = call.args[1]
    if not isinstance(group, relax.Tuple) or not str(call.args[0].name_hint).startswith((RESIZE, REPLACE_NAN)):
        return None
    data, *factors = group.fields
    view, result = tensors.view(data), static_shape(call)
    if view is None or view.is_plain or result is None or len(result) != len(view.shape):
        return None
    variable = tensors.permuted(call.args[0], view.order)
    operands = [view.stored, *map(tensors.operand, factors)]
    kind = relax.TensorType(permutations.stored(result, view.order), str(call.ty.dtype))
    return view.keeping(relax.call_tir(variable, operands, kind))


RULES: dict[str, Rule] = {
    CALL_KERNEL: _kernel,
    **{f"relax.{name}": _unary for name in UNARY},
    **{f"relax.{name}": _broadcast for name in BROADCAST},
    **{f"relax.{name}": _reduce for name in ("max", "mean", "min", "prod", "std", "sum", "variance")},
    **{f"relax.{name}": _reshape for name in ("expand_dims", "flatten", "nn.batch_flatten", "reshape", "squeeze")},
    **{f"relax.nn.{name}": _normalise for name in ("group_norm", "instance_norm", "layer_norm", "rms_norm")},
    "relax.argmax": _arg_reduce,
    "relax.argmin": _arg_reduce,
    "relax.broadcast_to": _broadcast_to,
    "relax.concat": _concat,
    "relax.cumprod": _along(_scan),
    "relax.cumsum": _along(_scan),
    "relax.dequantize": _quantise,
    "relax.flip": _along(lambda _call, data, axis: relax.op.flip(data, axis)),
    "relax.image.resize2d": _resize2d,
    "relax.nn.adaptive_avg_pool2d": _adaptive_pool2d,
    **{f"relax.nn.{name}_pool1d": _pool("NCW", "NWC", _NWC) for name in ("avg", "max")},
    **{f"relax.nn.{name}_pool2d": _pool("NCHW", "NHWC", _NHWC) for name in ("avg", "max")},
    "relax.nn.conv1d": _conv1d,
    "relax.nn.conv2d": _conv2d,
    "relax.nn.log_softmax": _along(lambda _call, data, axis: relax.op.nn.log_softmax(data, axis)),
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.nn.softmax": _along(lambda _call, data, axis: relax.op.nn.softmax(data, axis)),
    "relax.permute_dims": _transpose,
    "relax.quantize": _quantise,
    "relax.repeat": _along(lambda call, data, axis: relax.op.repeat(data, int(call.attrs.repeats), axis)),
    "relax.split": _along(_split),
    "relax.strided_slice": _strided_slice,
    "relax.take": _take,
}
"""Rules by operator; an operator without a rule is computed in the network's own axis order."""
