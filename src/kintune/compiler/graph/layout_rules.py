"""Layout rules: how operators are computed on tensors that are stored in another axis order than the network's.

A rule takes a call and returns the equivalent expression on the stored operands, with the order of its result; or None,
where the operands must be brought into the network's order instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from kintune.compiler.graph import permutations
from kintune.compiler.graph.layout_views import LayoutResult, TensorView, TensorViews
from kintune.compiler.graph.rewriting import operator_of, static_shape

__all__ = ["BROADCAST", "RULES", "UNARY"]

Rule = Callable[[TensorViews, relax.Call], "LayoutResult | None"]
Order = tuple[int, ...]

_NHWC: Order = (0, 3, 1, 2)
_HWIO: Order = (3, 2, 0, 1)
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


def _rearranged(tensors: TensorViews, expression: relax.Expr) -> TensorView | None:
    """The operand's view, when it is stored in another axis order than the network's; None otherwise."""
    view = tensors.view(expression)
    return None if view is None or view.is_plain else view


def _call(call: relax.Call, *arguments: relax.Expr) -> relax.Call:
    return relax.Call(call.op, list(arguments), call.attrs, call.ty_args)


def _axis(axis: int, rank: int) -> int:
    return int(axis) % rank


def _unary(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    return None if view is None else LayoutResult(_call(call, view.stored, *call.args[1:]), view.order, view.firm)


def _best_order(views: Sequence[TensorView], rank: int) -> tuple[Order, bool] | None:
    """The order in which the least must be moved to combine tensors; None when it is the network's own."""
    plain = permutations.identity(rank)
    orders: dict[Order, bool] = {}
    for view in views:
        if len(view.shape) == rank and not view.is_plain:
            orders[view.order] = orders.get(view.order, False) or view.firm
    if not orders:
        return None

    def moved(order: Order) -> int:
        return sum(_size(view.shape) for view in views if not _lies_in(view, order))

    best = min(orders, key=lambda order: (moved(order), not orders[order]))
    least, others = moved(best), moved(plain)
    if others < least or (others == least and not orders[best]):
        return None
    return best, orders[best]


def _lies_in(view: TensorView, order: Order) -> bool:
    rank = len(order)
    shape = (1,) * (rank - len(view.shape)) + view.shape
    return permutations.is_copy_free(shape, permutations.expanded(view.order, rank), order)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _broadcast(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    shape = static_shape(relax.Var("result", call.ty))
    views = [tensors.view(argument) for argument in call.args]
    if shape is None or any(view is None for view in views):
        return None
    known = [view for view in views if view is not None]
    chosen = _best_order([view for view in known if not _is_constant(view.stored)], len(shape))
    if chosen is None:
        return None
    order, firm = chosen
    operands = [
        view.stored if _size(view.shape) == 1 and _is_constant(view.stored) else tensors.arrange(view, order)
        for view in known
    ]
    return LayoutResult(_call(call, *operands), order, firm)


def _is_constant(expression: relax.Expr) -> bool:
    return isinstance(expression, tvm.ir.GenericConst)


def _transpose(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = tensors.view(call.args[0])
    if view is None or _is_constant(view.stored):
        return None
    rank = len(view.shape)
    axes = range(rank)[::-1] if call.attrs.axes is None else [_axis(axis, rank) for axis in call.attrs.axes]
    return LayoutResult(view.stored, permutations.compose(view.order, axes), view.firm)


def _reshape(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    wanted = static_shape(relax.Var("result", call.ty))
    if view is None or wanted is None:
        return None
    data, order = view.stored, permutations.reshaped(view.shape, view.order, wanted)
    if order is None:
        before = permutations.regrouped(view.shape, view.order, wanted) if view.firm else None
        order = None if before is None else permutations.reshaped(view.shape, before, wanted)
        if before is None or order is None or order == permutations.identity(len(order)):
            return None
        data = tensors.arrange(view, before)
    return LayoutResult(relax.op.reshape(data, permutations.stored(wanted, order)), order, view.firm)


def _reduce(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None or call.attrs.axis is None:
        return None
    rank = len(view.shape)
    axes = [_axis(axis, rank) for axis in call.attrs.axis]
    places = sorted(view.order[axis] for axis in axes)
    found = getattr(relax.op, _short(call))(view.stored, places, bool(call.attrs.keepdims))
    return LayoutResult(found, view.order if call.attrs.keepdims else permutations.reduced(view.order, axes), view.firm)


def _short(call: relax.Call) -> str:
    return operator_of(call).removeprefix("relax.")


def _arg_reduce(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None or call.attrs.axis is None:
        return None
    axis = _axis(call.attrs.axis, len(view.shape))
    found = getattr(relax.op, _short(call))(view.stored, view.order[axis], bool(call.attrs.keepdims))
    return LayoutResult(
        found, view.order if call.attrs.keepdims else permutations.reduced(view.order, [axis]), view.firm
    )


def _along(build: Callable[[relax.Call, relax.Expr, int], relax.Expr]) -> Rule:
    """An operator along one axis, whose result has the operand's axes."""

    def rule(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
        view = _rearranged(tensors, call.args[0])
        if view is None or call.attrs.axis is None:
            return None
        place = view.order[_axis(call.attrs.axis, len(view.shape))]
        return LayoutResult(build(call, view.stored, place), view.order, view.firm)

    return rule


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
    views = [tensors.view(field) for field in group.fields]
    known = [view for view in views if view is not None]
    if len(known) != len(views) or not known:
        return None
    rank = len(known[0].shape)
    chosen = _best_order([view for view in known if not _is_constant(view.stored)], rank)
    if chosen is None or call.attrs.axis is None:
        return None
    order, firm = chosen
    fields = [tensors.arrange(view, order) for view in known]
    return LayoutResult(relax.op.concat(fields, order[_axis(call.attrs.axis, rank)]), order, firm)


def _strided_slice(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = [view.order[_axis(_integer(field), len(view.shape))] for field in call.args[1].fields]
    moved = relax.Tuple([relax.prim_value(axis) for axis in axes])
    return LayoutResult(_call(call, view.stored, moved, *call.args[2:]), view.order, view.firm)


def _integer(expression: Any) -> int:
    return int(getattr(expression, "value", expression))


def _take(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    indices = static_shape(call.args[1])
    if view is None or indices is None or len(indices) > 1 or call.attrs.axis is None:
        return None
    axis = _axis(call.attrs.axis, len(view.shape))
    found = relax.op.take(view.stored, tensors.operand(call.args[1]), view.order[axis], call.attrs.mode)
    return LayoutResult(found, view.order if indices else permutations.reduced(view.order, [axis]), view.firm)


def _pad(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None:
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    moved = [width for axis in permutations.inverse(view.order) for width in widths[2 * axis : 2 * axis + 2]]
    found = relax.op.nn.pad(view.stored, moved, str(call.attrs.pad_mode), float(call.attrs.pad_value))
    return LayoutResult(found, view.order, view.firm)


def _tile(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None or len(call.attrs.repeats) != len(view.shape):
        return None
    repeats = [int(call.attrs.repeats[axis]) for axis in permutations.inverse(view.order)]
    return LayoutResult(relax.op.tile(view.stored, repeats), view.order, view.firm)


def _broadcast_to(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    wanted = static_shape(relax.Var("result", call.ty))
    if view is None or wanted is None or len(wanted) != len(view.shape):
        return None
    found = relax.op.broadcast_to(view.stored, permutations.stored(wanted, view.order))
    return LayoutResult(found, view.order, view.firm)


def _conv2d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data, weight = tensors.view(call.args[0]), tensors.view(call.args[1])
    attributes = call.attrs
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    if data is None or weight is None or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    found = relax.op.nn.conv2d(
        tensors.arrange(data, _NHWC),
        tensors.arrange(weight, _HWIO),
        attributes.strides,
        attributes.padding,
        attributes.dilation,
        attributes.groups,
        "NHWC",
        "HWIO",
        "NHWC",
        attributes.out_dtype,
    )
    return LayoutResult(found, _NHWC)


def _channels_last(tensors: TensorViews, call: relax.Call) -> relax.Expr | None:
    """The operand of a pooling or resizing operator, stored with its channels last; None when it is not."""
    view = _rearranged(tensors, call.args[0])
    if view is None or len(view.shape) != len(_NHWC) or call.attrs.layout != "NCHW":
        return None
    return tensors.arrange(view, _NHWC) if _lies_in(view, _NHWC) else None


def _pool2d(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    data = _channels_last(tensors, call)
    if data is None or call.attrs.out_layout != "NCHW":
        return None
    a = call.attrs
    pool = getattr(relax.op.nn, _short(call).removeprefix("nn."))
    found = pool(data, a.pool_size, a.strides, a.padding, a.dilation, a.ceil_mode, a.count_include_pad, "NHWC", "NHWC")
    return LayoutResult(found, _NHWC)


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
    found = relax.op.image.resize2d(
        data,
        call.args[1],
        tuple(float(bound) for bound in a.roi),
        "NHWC",
        a.method,
        a.coordinate_transformation_mode,
        a.rounding_method,
        a.cubic_alpha,
        a.cubic_exclude,
        a.extrapolation_value,
        a.out_dtype,
    )
    return LayoutResult(found, _NHWC)


def _normalise(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    """A norm whose scale and offset are tensors along its channels, or over the axes that it reduces."""
    view = _rearranged(tensors, call.args[0])
    if view is None:
        return None
    a, rank = call.attrs, len(view.shape)
    axes = [view.order[_axis(axis, rank)] for axis in a.axes]
    operands = [tensors.operand(argument) for argument in call.args[1:]]
    name = _short(call).removeprefix("nn.")
    last: tuple[Any, ...] = (axes, a.epsilon, a.center, a.scale)
    if name == "layer_norm" and axes != sorted(axes):
        return None
    if name != "layer_norm":
        channels = view.order[_axis(a.channel_axis, rank)]
        groups = (a.num_groups,) if name == "group_norm" else ()
        last = (*groups, channels, *last)
    return LayoutResult(getattr(relax.op.nn, name)(view.stored, *operands, *last), view.order, view.firm)


def _prelu(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None:
        return None
    axis = view.order[_axis(call.attrs.axis, len(view.shape))]
    return LayoutResult(relax.op.nn.prelu(view.stored, tensors.operand(call.args[1]), axis), view.order, view.firm)


def _quantise(tensors: TensorViews, call: relax.Call) -> LayoutResult | None:
    view = _rearranged(tensors, call.args[0])
    if view is None:
        return None
    axis = view.order[_axis(call.attrs.axis, len(view.shape))]
    steps = [tensors.operand(argument) for argument in call.args[1:]]
    found = getattr(relax.op, _short(call))(view.stored, *steps, axis, str(call.attrs.out_dtype))
    return LayoutResult(found, view.order, view.firm)


RULES: dict[str, Rule] = {
    **{f"relax.{name}": _unary for name in UNARY},
    **{f"relax.{name}": _broadcast for name in BROADCAST},
    **{f"relax.{name}": _reduce for name in ("max", "mean", "min", "prod", "std", "sum", "variance")},
    **{f"relax.{name}": _reshape for name in ("expand_dims", "flatten", "nn.batch_flatten", "reshape", "squeeze")},
    **{f"relax.nn.{name}": _normalise for name in ("group_norm", "instance_norm", "layer_norm")},
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
    "relax.nn.avg_pool2d": _pool2d,
    "relax.nn.conv2d": _conv2d,
    "relax.nn.log_softmax": _along(lambda _call, data, axis: relax.op.nn.log_softmax(data, axis)),
    "relax.nn.max_pool2d": _pool2d,
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
"""By operator; an operator without a rule is computed in the network's own axis order."""
