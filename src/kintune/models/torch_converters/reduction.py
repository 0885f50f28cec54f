"""Reductions, scans, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.reduction import greatest
from kintune.models.expressions import HALVES, along_axis, dtype_of, is_float, shape_of
from kintune.models.formulas import Real, choose, power
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _axes(value: Expression, dims: Any) -> list[int]:
    """The axes that `dims` (a number, several, none: all) stands for, not negative."""
    rank = len(shape_of(value))
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return sorted(dim % rank for dim in given) if rank else []


def _reduce(
    t: Translation, a: SimpleNamespace, operator: Callable[..., Any], value: Expression, keep: bool | None = None
) -> Expression:
    """`operator` over the node's dimensions; a reduction over no axis changes nothing but the shape."""
    axes = _axes(value, getattr(a, "dim", None))
    keep = getattr(a, "keepdim", False) if keep is None else keep
    return t.emit(operator(value, axis=axes, keepdims=keep)) if axes else value


def _sum(t: Translation, a: SimpleNamespace) -> Expression:
    """In the result's type, but of floats never in a narrower one than float32 or their own."""
    value = t.wide(a.self)
    if not (is_float(dtype_of(value)) and t.result.dtype in ("float32", *HALVES)):
        value = t.cast(value, t.result.dtype)
    return t.finish(_reduce(t, a, relax.op.sum, t.wide(value)))


def _plain(operator: Callable[..., Any]) -> Converter:
    """A reduction in the result's type."""
    return lambda t, a: t.finish(_reduce(t, a, operator, t.wide(t.cast(a.self, t.result.dtype))))


def _ordered(t: Translation, value: Expression) -> Expression:
    """`value` in a type that the compiler compares."""
    return t.cast(value, "int8") if dtype_of(value) == "bool" else t.wide(value)


def _amount(operator: Callable[..., Any]) -> Converter:
    """The largest or smallest element."""
    return lambda t, a: t.finish(_reduce(t, a, operator, _ordered(t, a.self)))


def _holds(operator: Callable[..., Any]) -> Converter:
    """Whether any or all elements are not zero."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.cast(t.cast(a.self, "bool"), "uint8")  # of no elements the maximum is 0, and the minimum is not
        return t.cast(t.cast(_reduce(t, a, operator, value), "bool"), t.result.dtype)

    return convert


def _with_place(operator: Callable[..., Any], place: Callable[..., Any]) -> Converter:
    """The largest or smallest element along one axis, and where it is."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not shape_of(a.self):
            return (a.self, t.full((), 0, "int64"))
        value, axis = _ordered(t, a.self), a.dim % len(shape_of(a.self))
        largest = t.cast(t.emit(operator(value, axis=[axis], keepdims=a.keepdim)), dtype_of(a.self))
        where = t.emit(place(value, axis=axis, keepdims=a.keepdim)) if 1 in t.used else None
        return (largest, t.cast(where, "int64") if where is not None else None)

    return convert


def _place(operator: Callable[..., Any]) -> Converter:
    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value, axis = _ordered(t, a.self), a.dim
        if not shape_of(value):
            return t.full((), 0, "int64")
        if axis is None:
            value, axis = t.reshape(value, [math.prod(shape_of(value))]), 0
        found = t.emit(operator(value, axis=axis % len(shape_of(value))))
        return t.reshape(t.cast(found, "int64"), t.result.shape)

    return convert


def _variance(t: Translation, a: SimpleNamespace) -> tuple[Real, Expression]:
    """Variance and mean in full precision."""
    x = Real(t, t.wide(a.self))
    count = math.prod(shape_of(x.value)[axis] for axis in _axes(x.value, getattr(a, "dim", None)))
    correction = getattr(a, "correction", 1)
    mean = _reduce(t, a, relax.op.mean, x.value, keep=True)
    offset = x - Real(t, mean)
    total = Real(t, _reduce(t, a, relax.op.sum, (offset * offset).value))
    variance = total / total.constant(max(count - (1 if correction is None else correction), 0))
    return variance, t.reshape(mean, shape_of(variance.value))


def _var_mean(t: Translation, a: SimpleNamespace) -> Expression:
    variance, mean = _variance(t, a)
    return tuple(t.cast(each, dtype_of(a.self)) for each in (variance.value, mean))


def _vector_norm(t: Translation, a: SimpleNamespace) -> Expression:
    size, order = abs(Real(t, t.wide(t.cast(a.self, t.result.dtype)))), float(a.ord)
    if math.isinf(order):
        return t.finish(_reduce(t, a, relax.op.max if order > 0 else relax.op.min, size.value))
    powers = power(size, order) if order else size.cast("bool").cast(size.dtype)
    return t.finish(power(Real(t, _reduce(t, a, relax.op.sum, powers.value)), 1 / (order or 1)).value)


def _distance(t: Translation, a: SimpleNamespace, first: Any = None, second: Any = None, dim: Any = None) -> Expression:
    """The norm of the difference of two tensors."""
    apart = t.emit(relax.op.subtract(*((a.self, a.other) if first is None else (first, second))))
    return _vector_norm(t, SimpleNamespace(self=apart, ord=a.p, dim=dim, keepdim=False))


def _distances(t: Translation, a: SimpleNamespace) -> Expression:
    """The distance of each row of one matrix from each row of another."""
    *batch, rows, width = shape_of(a.x1)
    *others, columns, _ = shape_of(a.x2)
    first, second = t.reshape(a.x1, [*batch, rows, 1, width]), t.reshape(a.x2, [*others, 1, columns, width])
    return _distance(t, a, first, second, [-1])


def _pair_distances(t: Translation, a: SimpleNamespace) -> Expression:
    """The distance of each row of a matrix from each later one."""
    rows, width = shape_of(a.self)
    if not width:
        return t.nothing()
    first, second = (t.take(a.self, places, 0) for places in np.triu_indices(rows, 1))
    return _distance(t, a, first, second, [1])


def _scan(operator: Callable[..., Any]) -> Converter:
    """A running sum or product."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.wide(t.cast(a.self, t.result.dtype))
        if not shape_of(value):
            return t.finish(value)
        return t.finish(t.emit(operator(value, axis=a.dim % len(shape_of(value)), dtype=dtype_of(value))))

    return convert


def _running(operator: Callable[..., Any]) -> Converter:
    """A running extreme along one axis, and where it was found last; not-a-number stays.

    In log2(n) steps: each joins the extreme of a span with that of the span of the same length before it.
    """

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not shape_of(a.self):
            return (a.self, t.full((), 0, "int64"))
        value = _ordered(t, a.self)
        shape, dtype = shape_of(value), dtype_of(value)
        axis = a.dim % len(shape)
        size, span = shape[axis], 1
        where = t.expand(t.const(along_axis(np.arange(size), axis, len(shape)), "int64"), shape)
        while span < size:
            ends = ((span, size), (0, size - span))
            both = [[t.slice(each, axis, *part) for part in ends] for each in (value, where)]
            newer = Real(t, t.emit(operator(*both[0])))
            if is_float(dtype):
                newer = newer | Real(t, both[0][0]).isnan()
            value, where = (
                t.concat([t.slice(each, axis, 0, span), t.emit(relax.op.where(newer.value, *pair))], axis)
                for each, pair in zip((value, where), both, strict=True)
            )
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
        joined = _log_sum(*(Real(t, t.slice(value, axis, *ends)) for ends in ((span, size), (0, size - span))))
        value = t.concat([t.slice(value, axis, 0, span), joined.value], axis)
        span *= 2
    return t.finish(value)


def _log_sum(left: Real, right: Real) -> Real:
    """log(exp(left) + exp(right)): the larger one, and what the smaller one adds to it.

    Equal infinities have no difference; their sum is as infinite.
    """
    more = ((-abs(left - right)).exp() + 1).log()
    return choose(left.equal(right), left + math.log(2), left.maximum(right) + more)


def _kth(t: Translation, value: Expression, k: int, axis: int, keep: bool) -> tuple[Expression, Expression]:
    """The `k`-th smallest element along an axis, counted from 1, and where it is; not-a-number where anything is."""
    shape = [*shape_of(value)]
    shape[axis : axis + 1] = [1] if keep else []
    both = greatest(t, value, k, axis, largest=False)
    found, where = (t.reshape(t.slice(each, axis, k - 1, k), shape) for each in both)
    if is_float(dtype_of(value)):
        unknown = Real(t, value).isnan().cast("int8").max(axis=[axis], keepdims=keep)
        found = choose(unknown.cast("bool"), math.nan, Real(t, found)).value
    return found, where


def _kth_value(t: Translation, a: SimpleNamespace) -> Expression:
    if not shape_of(a.self):
        return (a.self, t.full((), 0, "int64"))
    value, axis = t.wide(a.self), a.dim % len(shape_of(a.self))
    size, dtype = shape_of(value)[axis], dtype_of(value)
    k = getattr(a, "k", (size + 1) // 2)  # a median is the lower one of two
    if not hasattr(a, "k") or not is_float(dtype):
        found, where = _kth(t, value, k, axis, a.keepdim)
        return (t.cast(found, dtype_of(a.self)), where)
    x = Real(t, value)
    unknown = x.isnan()  # the largest, as in a sort
    found, where = _kth(t, choose(unknown, math.inf, x).value, k, axis, a.keepdim)
    few = unknown.cast("int64").sum(axis=[axis], keepdims=a.keepdim) > size - k
    return (t.cast(choose(few, math.nan, Real(t, found)).value, dtype_of(a.self)), where)


def _median(t: Translation, a: SimpleNamespace) -> Expression:
    """The median of all elements, the lower one of two."""
    count = math.prod(shape_of(a.self))
    return t.finish(_kth(t, t.reshape(t.wide(a.self), [count]), (count + 1) // 2, 0, keep=False)[0])


def _median_number(t: Translation, a: SimpleNamespace) -> Any:
    """The median of the elements that are numbers, the lower one of two; NaN where there are none.

    Raises:
        NotConvertible: when its place is asked for, which PyTorch leaves open where elements are equal.
    """
    if 1 in t.used:
        raise NotConvertible("the place of a median that leaves out NaN")
    shape = shape_of(a.self) if getattr(a, "dim", None) is not None else (math.prod(shape_of(a.self)),)
    value = t.reshape(t.wide(a.self), shape or (1,))
    axis, x = getattr(a, "dim", 0) % len(shape or (1,)), Real(t, value)
    known = x.equal(x)
    ordered, _ = greatest(
        t, (choose(known, x, math.inf) if is_float(x.dtype) else x).value, shape_of(value)[axis], axis, largest=False
    )
    count = known.cast("int64").sum(axis=[axis], keepdims=True)
    # the number of an element is in the middle if twice of it is the count less one or two
    numbers = along_axis(np.arange(shape_of(value)[axis]), axis, len(shape_of(value)))
    after = count - Real(t, t.const(2 * numbers, "int64"))
    middle = choose(after.equal(1) | after.equal(2), Real(t, ordered), 0).sum(axis=[axis], keepdims=True)
    found = (choose(count.equal(0), math.nan, middle) if is_float(x.dtype) else middle).value
    result, *_ = t.results or (t.result,)
    assert result is not None
    found = t.cast(t.reshape(found, result.shape), result.dtype)
    return (found, None) if t.results else found


def _sort(t: Translation, a: SimpleNamespace) -> Expression:
    """All elements along an axis in order, or the first k of them, and where they were."""
    shape = shape_of(a.self)
    if not shape:
        return (a.self, t.full((), 0, "int64"))
    axis = a.dim % len(shape)
    largest = a.largest if hasattr(a, "k") else a.descending
    return greatest(t, a.self, getattr(a, "k", shape[axis]), axis, largest=largest)


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), _sum),
    **dict.fromkeys(("mean.default", "mean.dim"), _plain(relax.op.mean)),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _plain(relax.op.prod)),
    **dict.fromkeys(("max.default", "amax.default"), _amount(relax.op.max)),
    **dict.fromkeys(("min.default", "amin.default"), _amount(relax.op.min)),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _holds(relax.op.max)),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _holds(relax.op.min)),
    "max.dim": _with_place(relax.op.max, relax.op.argmax),
    "min.dim": _with_place(relax.op.min, relax.op.argmin),
    "argmax.default": _place(relax.op.argmax),
    "argmin.default": _place(relax.op.argmin),
    **dict.fromkeys(("var.correction", "var.default", "var.dim"), lambda t, a: t.finish(_variance(t, a)[0].value)),
    "std.correction": lambda t, a: t.finish(_variance(t, a)[0].sqrt().value),
    "var_mean.correction": _var_mean,
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
    **dict.fromkeys(("topk.default", "sort.default", "sort.stable"), _sort),
}
"""Operator of aten -> its converter."""
