"""Reductions, scans, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.expressions import HALVES, along_axis, dtype_of, is_float, shape_of
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _axes(value: Expression, dims: Any) -> list[int]:
    """The axes that `dims` (a number, several, none: all) stands for, not negative."""
    rank = len(shape_of(value))
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return sorted(dim % rank for dim in given) if rank else []


def _reduce(t: Translation, operator: Callable[..., Any], value: Expression, dims: Any, keep: bool) -> Expression:
    """`operator` over `dims`; a reduction over no axis changes nothing but the shape."""
    axes = _axes(value, dims)
    if not axes:
        return value
    return t.emit(operator(value, axis=axes, keepdims=keep))


def _sum(t: Translation, a: SimpleNamespace) -> Expression:
    """In the result's type, but of floats never in a narrower one than float32 or their own."""
    value = t.wide(a.self)
    if not (is_float(dtype_of(value)) and t.result.dtype in ("float32", *HALVES)):
        value = t.cast(value, t.result.dtype)
    return t.finish(_reduce(t, relax.op.sum, t.wide(value), getattr(a, "dim", None), getattr(a, "keepdim", False)))


def _mean(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(t.cast(a.self, t.result.dtype))
    return t.finish(_reduce(t, relax.op.mean, value, getattr(a, "dim", None), getattr(a, "keepdim", False)))


def _prod(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(t.cast(a.self, t.result.dtype))
    return t.finish(_reduce(t, relax.op.prod, value, getattr(a, "dim", None), getattr(a, "keepdim", False)))


def _amount(operator: Callable[..., Any]) -> Converter:
    """The largest or smallest element."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.cast(a.self, "int8") if dtype_of(a.self) == "bool" else t.wide(a.self)
        return t.finish(_reduce(t, operator, value, getattr(a, "dim", None), getattr(a, "keepdim", False)))

    return convert


def _holds(operator: Callable[..., Any]) -> Converter:
    """Whether any or all elements are not zero."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.cast(t.cast(a.self, "bool"), "uint8")  # of no elements the maximum is 0, and the minimum is not
        return t.cast(
            t.cast(_reduce(t, operator, value, getattr(a, "dim", None), getattr(a, "keepdim", False)), "bool"),
            t.result.dtype,
        )

    return convert


def _with_place(operator: Callable[..., Any], place: Callable[..., Any]) -> Converter:
    """The largest or smallest element along one axis, and where it is."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not shape_of(a.self):
            return (a.self, t.full((), 0, "int64"))
        value = t.cast(a.self, "int8") if dtype_of(a.self) == "bool" else t.wide(a.self)
        axis = a.dim % len(shape_of(value))
        largest = t.cast(t.emit(operator(value, axis=[axis], keepdims=a.keepdim)), dtype_of(a.self))
        where = t.emit(place(value, axis=axis, keepdims=a.keepdim)) if 1 in t.used else None
        return (largest, t.cast(where, "int64") if where is not None else None)

    return convert


def _place(operator: Callable[..., Any]) -> Converter:
    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.cast(a.self, "int8") if dtype_of(a.self) == "bool" else t.wide(a.self)
        if not shape_of(value):
            return t.full((), 0, "int64")
        if a.dim is None:
            flat = t.reshape(value, [math.prod(shape_of(value))])
            return t.reshape(t.cast(t.emit(operator(flat, axis=0)), "int64"), t.result.shape)
        return t.cast(t.emit(operator(value, axis=a.dim % len(shape_of(value)), keepdims=a.keepdim)), "int64")

    return convert


def _variance(t: Translation, a: SimpleNamespace) -> tuple[Expression, Expression, str]:
    """Variance and mean in full precision, and the type to return."""
    value = t.wide(a.self)
    dims = getattr(a, "dim", None)
    axes = _axes(value, dims)
    keep = getattr(a, "keepdim", False)
    count = math.prod(shape_of(value)[axis] for axis in axes)
    correction = getattr(a, "correction", 1)
    correction = 1 if correction is None else correction
    mean = _reduce(t, relax.op.mean, value, dims, True)
    offset = t.emit(relax.op.subtract(value, mean))
    total = _reduce(t, relax.op.sum, t.emit(relax.op.multiply(offset, offset)), dims, keep)
    free = count - correction
    variance = t.emit(relax.op.divide(total, t.const(max(free, 0), dtype_of(value))))
    kept = shape_of(variance)
    return variance, t.reshape(mean, kept), dtype_of(a.self)


def _var(t: Translation, a: SimpleNamespace) -> Expression:
    return t.finish(_variance(t, a)[0])


def _std(t: Translation, a: SimpleNamespace) -> Expression:
    return t.finish(t.emit(relax.op.sqrt(_variance(t, a)[0])))


def _var_mean(t: Translation, a: SimpleNamespace) -> Expression:
    variance, mean, dtype = _variance(t, a)
    return (t.cast(variance, dtype), t.cast(mean, dtype))


def _vector_norm(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(t.cast(a.self, t.result.dtype))
    dtype = dtype_of(value)
    size = t.emit(relax.op.abs(value))
    order = float(a.ord)
    if math.isinf(order):
        return t.finish(_reduce(t, relax.op.max if order > 0 else relax.op.min, size, a.dim, a.keepdim))
    if order == 0:
        present = t.cast(t.cast(size, "bool"), dtype)
        return t.finish(_reduce(t, relax.op.sum, present, a.dim, a.keepdim))
    if order == 1:
        return t.finish(_reduce(t, relax.op.sum, size, a.dim, a.keepdim))
    if order == 2:
        total = _reduce(t, relax.op.sum, t.emit(relax.op.multiply(value, value)), a.dim, a.keepdim)
        return t.finish(t.emit(relax.op.sqrt(total)))
    powers = t.emit(relax.op.power(size, t.const(order, dtype)))
    total = _reduce(t, relax.op.sum, powers, a.dim, a.keepdim)
    return t.finish(t.emit(relax.op.power(total, t.const(1 / order, dtype))))


def _distance(t: Translation, a: SimpleNamespace) -> Expression:
    """The norm of the difference of two tensors."""
    apart = t.emit(relax.op.subtract(a.self, a.other))
    return _vector_norm(t, SimpleNamespace(self=apart, ord=a.p, dim=None, keepdim=False))


def _distances(t: Translation, a: SimpleNamespace) -> Expression:
    """The distance of each row of one matrix from each row of another."""
    *batch, rows, width = shape_of(a.x1)
    *others, columns, _ = shape_of(a.x2)
    first, second = t.reshape(a.x1, [*batch, rows, 1, width]), t.reshape(a.x2, [*others, 1, columns, width])
    apart = t.emit(relax.op.subtract(first, second))
    return _vector_norm(t, SimpleNamespace(self=apart, ord=a.p, dim=[-1], keepdim=False))


def _pair_distances(t: Translation, a: SimpleNamespace) -> Expression:
    """The distance of each row of a matrix from each later one."""
    rows, width = shape_of(a.self)
    if not width:
        return t.nothing()
    first, second = (t.take(a.self, places, 0) for places in np.triu_indices(rows, 1))
    apart = t.emit(relax.op.subtract(first, second))
    return _vector_norm(t, SimpleNamespace(self=apart, ord=a.p, dim=[1], keepdim=False))


def _scan(operator: Callable[..., Any]) -> Converter:
    """A running sum or product."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.wide(t.cast(a.self, t.result.dtype))
        if not shape_of(value):
            return t.finish(value)
        axis = a.dim % len(shape_of(value))
        return t.finish(t.emit(operator(value, axis=axis, dtype=dtype_of(value))))

    return convert


def _running(operator: Callable[..., Any]) -> Converter:
    """A running extreme along one axis, and where it was found last; not-a-number stays.

    In log2(n) steps: each joins the extreme of a span with that of the span of the same length before it.
    """

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not shape_of(a.self):
            return (a.self, t.full((), 0, "int64"))
        value = t.cast(a.self, "int8") if dtype_of(a.self) == "bool" else t.wide(a.self)
        shape, dtype = shape_of(value), dtype_of(value)
        axis = a.dim % len(shape)
        numbers = along_axis(np.arange(shape[axis]), axis, len(shape))
        where = t.const(np.broadcast_to(numbers, shape).copy(), "int64")
        span = 1
        while span < shape[axis]:
            rest = (axis, 0, shape[axis] - span)
            earlier, earlier_where = t.slice(value, *rest), t.slice(where, *rest)
            later, later_where = t.slice(value, axis, span, shape[axis]), t.slice(where, axis, span, shape[axis])
            newer = t.emit(operator(later, earlier))
            if is_float(dtype):
                newer = t.emit(relax.op.logical_or(newer, t.emit(relax.op.isnan(later))))
            joined = t.emit(relax.op.where(newer, later, earlier))
            joined_where = t.emit(relax.op.where(newer, later_where, earlier_where))
            value = t.concat([t.slice(value, axis, 0, span), joined], axis)
            where = t.concat([t.slice(where, axis, 0, span), joined_where], axis)
            span *= 2
        return (t.cast(value, dtype_of(a.self)), where)

    return convert


def _running_log_sum(t: Translation, a: SimpleNamespace) -> Expression:
    """The logarithm of the running sum of exponentials, in log2(n) steps as in `_running`."""
    value = t.wide(a.self)
    if not shape_of(value):
        return t.finish(value)
    axis = a.dim % len(shape_of(value))
    size, span = shape_of(value)[axis], 1
    while span < size:
        joined = _log_sum(t, t.slice(value, axis, span, size), t.slice(value, axis, 0, size - span))
        value = t.concat([t.slice(value, axis, 0, span), joined], axis)
        span *= 2
    return t.finish(value)


def _log_sum(t: Translation, left: Expression, right: Expression) -> Expression:
    """log(exp(left) + exp(right)): the larger one, and what the smaller one adds to it.

    Equal infinities have no difference; their sum is as infinite.
    """
    dtype = dtype_of(left)
    apart = t.emit(relax.op.negative(t.emit(relax.op.abs(t.emit(relax.op.subtract(left, right))))))
    more = t.emit(relax.op.log(t.emit(relax.op.add(t.emit(relax.op.exp(apart)), t.const(1.0, dtype)))))
    total = t.emit(relax.op.add(t.emit(relax.op.maximum(left, right)), more))
    doubled = t.emit(relax.op.add(left, t.const(math.log(2), dtype)))
    return t.emit(relax.op.where(t.emit(relax.op.equal(left, right)), doubled, total))


def _kth(t: Translation, value: Expression, k: int, axis: int, keep: bool) -> tuple[Expression, Expression]:
    """The `k`-th smallest element along an axis, counted from 1, and where it is; not-a-number where anything is."""
    both = t.emit(relax.op.topk(value, k=k, axis=axis, ret_type="both", largest=False, dtype="int64"))
    shape = [*shape_of(value)]
    shape[axis : axis + 1] = [1] if keep else []
    found, where = (t.reshape(t.slice(t.emit(both[i]), axis, k - 1, k), shape) for i in range(2))
    if is_float(dtype_of(value)):
        unknown = t.cast(t.emit(relax.op.isnan(value)), "int8")
        any_unknown = t.cast(t.emit(relax.op.max(unknown, axis=[axis], keepdims=keep)), "bool")
        found = t.emit(relax.op.where(any_unknown, t.const(math.nan, dtype_of(value)), found))
    return found, where


def _kth_value(t: Translation, a: SimpleNamespace) -> Expression:
    if not shape_of(a.self):
        return (a.self, t.full((), 0, "int64"))
    value = _sortable(t, a.self)
    axis = a.dim % len(shape_of(value))
    size, dtype = shape_of(value)[axis], dtype_of(value)
    k = getattr(a, "k", (size + 1) // 2)  # a median is the lower one of two
    if not hasattr(a, "k") or not is_float(dtype):
        found, where = _kth(t, value, k, axis, a.keepdim)
        return (t.cast(found, dtype_of(a.self)), where)
    unknown = t.emit(relax.op.isnan(value))  # the largest, as in a sort
    known = t.emit(relax.op.where(unknown, t.const(math.inf, dtype), value))
    found, where = _kth(t, known, k, axis, a.keepdim)
    count = t.emit(relax.op.sum(t.cast(unknown, "int64"), axis=[axis], keepdims=a.keepdim))
    few = t.emit(relax.op.greater(count, t.const(size - k, "int64")))
    found = t.emit(relax.op.where(few, t.const(math.nan, dtype), found))
    return (t.cast(found, dtype_of(a.self)), where)


def _median(t: Translation, a: SimpleNamespace) -> Expression:
    """The median of all elements, the lower one of two."""
    count = math.prod(shape_of(a.self))
    return t.finish(_kth(t, t.reshape(_sortable(t, a.self), [count]), (count + 1) // 2, 0, keep=False)[0])


def _median_number(t: Translation, a: SimpleNamespace) -> Any:
    """The median of the elements that are numbers, the lower one of two; NaN where there are none.

    Raises:
        NotConvertible: when its place is asked for, which PyTorch leaves open where elements are equal.
    """
    if 1 in t.used:
        raise NotConvertible("the place of a median that leaves out NaN")
    shape = shape_of(a.self) if getattr(a, "dim", None) is not None else (math.prod(shape_of(a.self)),)
    value = t.reshape(_sortable(t, a.self), shape or (1,))
    axis, dtype = getattr(a, "dim", 0) % len(shape or (1,)), dtype_of(value)
    known = t.emit(relax.op.equal(value, value))
    value = t.emit(relax.op.where(known, value, t.const(math.inf, dtype))) if is_float(dtype) else value
    size = shape_of(value)[axis]
    ordered = t.emit(relax.op.topk(value, k=size, axis=axis, ret_type="values", largest=False))
    count = t.emit(relax.op.sum(t.cast(known, "int64"), axis=[axis], keepdims=True))
    # the number of an element is in the middle if twice of it is the count less one or two
    twice = t.const(2 * along_axis(np.arange(size), axis, len(shape_of(value))), "int64")
    after = t.emit(relax.op.subtract(count, twice))
    middle = t.emit(relax.op.logical_or(*(t.emit(relax.op.equal(after, t.const(n, "int64"))) for n in (1, 2))))
    found = t.emit(relax.op.sum(t.emit(relax.op.where(middle, ordered, t.const(0, dtype))), axis=[axis], keepdims=True))
    if is_float(dtype):
        none = t.emit(relax.op.equal(count, t.const(0, "int64")))
        found = t.emit(relax.op.where(none, t.const(math.nan, dtype), found))
    result, *_ = t.results or (t.result,)
    assert result is not None
    found = t.cast(t.reshape(found, result.shape), result.dtype)
    return (found, None) if t.results else found


def _topk(t: Translation, a: SimpleNamespace) -> Expression:
    value = _sortable(t, a.self)
    if not shape_of(value):
        return (a.self, t.full((), 0, "int64"))
    axis = a.dim % len(shape_of(value))
    both = t.emit(relax.op.topk(value, k=a.k, axis=axis, ret_type="both", largest=a.largest, dtype="int64"))
    return (t.cast(t.emit(both[0]), dtype_of(a.self)), t.emit(both[1]))


def _sort(t: Translation, a: SimpleNamespace) -> Expression:
    value = _sortable(t, a.self)
    if not shape_of(value):
        return (a.self, t.full((), 0, "int64"))
    axis = a.dim % len(shape_of(value))
    size = shape_of(value)[axis]
    both = t.emit(relax.op.topk(value, k=size, axis=axis, ret_type="both", largest=a.descending, dtype="int64"))
    return (t.cast(t.emit(both[0]), dtype_of(a.self)), t.emit(both[1]))


def _sortable(t: Translation, value: Expression) -> Expression:
    """`value` in a type that sorting knows."""
    dtype = dtype_of(value)
    if dtype in ("bool", "int8", "int16", "uint8"):
        return t.cast(value, "int32")
    return t.wide(value)


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), _sum),
    **dict.fromkeys(("mean.default", "mean.dim"), _mean),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _prod),
    **dict.fromkeys(("max.default", "amax.default"), _amount(relax.op.max)),
    **dict.fromkeys(("min.default", "amin.default"), _amount(relax.op.min)),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _holds(relax.op.max)),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _holds(relax.op.min)),
    "max.dim": _with_place(relax.op.max, relax.op.argmax),
    "min.dim": _with_place(relax.op.min, relax.op.argmin),
    "argmax.default": _place(relax.op.argmax),
    "argmin.default": _place(relax.op.argmin),
    **dict.fromkeys(("var.correction", "var.default", "var.dim"), _var),
    **dict.fromkeys(("std.correction",), _std),
    **dict.fromkeys(("var_mean.correction",), _var_mean),
    "dist.default": _distance,
    "_cdist_forward.default": _distances,
    "_pdist_forward.default": _pair_distances,
    "linalg_vector_norm.default": _vector_norm,
    "cumsum.default": _scan(relax.op.cumsum),
    "cumprod.default": _scan(relax.op.cumprod),
    "cummax.default": _running(relax.op.greater_equal),
    "cummin.default": _running(relax.op.less_equal),
    "logcumsumexp.default": _running_log_sum,
    "median.default": _median,
    **dict.fromkeys(("median.dim", "kthvalue.default"), _kth_value),
    **dict.fromkeys(("nanmedian.default", "nanmedian.dim"), _median_number),
    "topk.default": _topk,
    **dict.fromkeys(("sort.default", "sort.stable"), _sort),
}
"""Operator of aten -> its converter."""
