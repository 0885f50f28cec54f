"""Products, convolutions, attention and normalisation; half precision is summed in float32 and rounded once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.convolution import CONVOLUTIONS, applied, transposed, with_bias
from kintune.models.converters.normalisation import scaled, standardised
from kintune.models.expressions import HALVES, constant_of, dtype_of, shape_of
from kintune.models.formulas import Real, choose
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def product(t: Translation, left: Expression, right: Expression) -> Expression:
    """A matrix product; that of half precision is float32, and the caller rounds it."""
    wide = "float32" if dtype_of(left) in HALVES else None
    return t.emit(relax.op.matmul(left, right, out_dtype=wide))


def _named(a: SimpleNamespace, *names: str) -> Expression:
    """The argument that has one of several names: they differ among the operators of a kind."""
    return next(getattr(a, name) for name in names if hasattr(a, name))


def _matmul(t: Translation, a: SimpleNamespace) -> Expression:
    return t.finish(product(t, a.self, _named(a, "other", "mat2", "vec")))


def _product_of_bytes(t: Translation, a: SimpleNamespace) -> Expression:
    """The product of two matrices of int8, in int32."""
    return t.emit(relax.op.matmul(a.self, a.mat2, out_dtype="int32"))


def _linear(t: Translation, a: SimpleNamespace) -> Expression:
    weight = a.weight
    if len(shape_of(weight)) == 2:
        weight = t.emit(relax.op.permute_dims(weight))
    result = product(t, a.input, weight)
    if a.bias is not None:
        result = t.emit(relax.op.add(result, t.wide(a.bias)))
    return t.finish(result)


def _product_of_three(t: Translation, a: SimpleNamespace) -> Expression:
    """The sum over some axes of the product of three tensors, each with axes of size 1 put in."""
    factors = []
    for value, axes in ((a.i1, a.expand1), (a.i2, a.expand2), (a.i3, a.expand3)):
        shape = [*shape_of(value)]
        for axis in axes:
            shape.insert(axis, 1)
        factors.append(t.reshape(t.wide(value), shape))
    whole = functools.reduce(mul, (Real(t, each) for each in factors))
    return t.finish(whole.sum(axis=list(a.sumdim)).value)


def _sum_of_product(t: Translation, a: SimpleNamespace) -> Expression:
    """beta * self + alpha * (a @ b); of addbmm the products of a batch are added up."""
    left, right = _named(a, "mat1", "batch1", "mat"), _named(a, "mat2", "batch2", "vec")
    result = Real(t, product(t, left, right))
    if len(shape_of(result.value)) > len(t.result.shape):
        result = result.sum(axis=[0])
    result = result * a.alpha
    if a.beta != 0:
        result = result + Real(t, a.self).cast(result.dtype) * a.beta
    return t.finish(result.value)


def _convolution(t: Translation, a: SimpleNamespace) -> Expression:
    rank, wide = len(shape_of(a.input)) - 2, "float32" if dtype_of(a.input) in HALVES else None
    if rank not in (1, 2, 3):
        raise NotConvertible(f"a convolution over {rank} axes")
    strides, padding, dilation = (
        [int(v) for v in (list(values) * rank if len(values) == 1 else values)]
        for values in (a.stride, a.padding, a.dilation)
    )
    if a.transposed:
        outputs = t.result.shape[2:]
        found = transposed(t, a.input, a.weight, a.bias, strides, dilation, a.groups, padding, outputs, wide)
        return t.finish(found)
    settings = {"strides": strides, "padding": padding, "dilation": dilation, "groups": a.groups, "out_dtype": wide}
    return t.finish(with_bias(t, t.emit(applied(CONVOLUTIONS, "OI", a.input, a.weight, **settings)), a.bias))


def _attention(t: Translation, a: SimpleNamespace) -> Expression:
    """softmax(query @ key^T * scale + mask) @ value; a row whose mask excludes all keys yields zeros."""
    if a.dropout_p:
        raise NotConvertible("attention with dropout")
    query, key, value = a.query, a.key, a.value
    dtype = dtype_of(query)
    if a.enable_gqa:
        key, value = (_repeat_heads(t, part, shape_of(query)[-3]) for part in (key, value))
    *_, rows, width = shape_of(query)
    columns = shape_of(key)[-2]
    scale = 1 / math.sqrt(width) if a.scale is None else a.scale
    axes = list(range(len(shape_of(key))))
    axes[-1], axes[-2] = axes[-2], axes[-1]
    scores = Real(t, product(t, query, t.permute(key, axes))) * scale
    mask = a.attn_mask
    if a.is_causal:
        mask = t.const(np.tril(np.ones((rows, columns), bool)), "bool")
    empty = None
    if mask is not None:
        seen = given = Real(t, mask).cast(scores.dtype) if dtype_of(mask) != "bool" else Real(t, mask)
        if seen.dtype == "bool":
            scores = choose(seen, scores, -math.inf)
        else:
            scores, seen = scores + given, given > -math.inf
        known = constant_of(given.value)
        if known is None or not _every_row_sees(known):
            empty = seen.cast("int8").max(axis=[-1], keepdims=True).equal(0)
    weights = scores.softmax(axis=-1)
    weights = weights if empty is None else choose(empty, 0, weights)
    return t.finish(product(t, weights.cast(dtype).value, value))


def _every_row_sees(mask: Any) -> bool:
    visible = mask if mask.dtype == bool else np.asarray(mask, np.float32) > -np.inf
    return bool(visible.any(-1).all())


def _repeat_heads(t: Translation, value: Expression, heads: int) -> Expression:
    """Keys or values with each head repeated for the query heads that share it, `heads` in total."""
    *batch, own, rows, width = shape_of(value)
    if own == heads:
        return value
    spread = t.expand(t.reshape(value, [*batch, own, 1, rows, width]), [*batch, own, heads // own, rows, width])
    return t.reshape(spread, [*batch, heads, rows, width])


def _softmax(t: Translation, a: SimpleNamespace) -> Expression:
    return _along(t, a, relax.op.nn.softmax)


def _log_softmax(t: Translation, a: SimpleNamespace) -> Expression:
    return _along(t, a, relax.op.nn.log_softmax)


def _along(t: Translation, a: SimpleNamespace, operator: Any) -> Expression:
    value = t.wide(t.cast(a.self, t.result.dtype))
    rank = len(shape_of(value))
    if not rank:
        return t.finish(t.reshape(t.emit(operator(t.reshape(value, [1]), axis=0)), []))
    return t.finish(t.emit(operator(value, axis=a.dim % rank)))


def _affine(t: Translation, a: SimpleNamespace, shape: list[int], dtype: str) -> tuple[Expression, Expression]:
    """Scale and offset of a norm; ones and zeros where it has none."""
    given = ((a.weight, 1), (a.bias, 0))
    scale, offset = (t.const(np.full(shape, n), dtype) if part is None else t.cast(part, dtype) for part, n in given)
    return scale, offset


def _layer_norm(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(a.input)
    shape = [int(size) for size in a.normalized_shape]
    if t.used & {1, 2}:
        return _with_statistics(t, a, value, range(-len(shape), 0), shape)
    scale, offset = _affine(t, a, shape, dtype_of(value))
    result = t.emit(relax.op.nn.layer_norm(value, scale, offset, axes=list(range(-len(shape), 0)), epsilon=a.eps))
    return (t.cast(result, dtype_of(a.input)), None, None)


def _group_norm(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(a.input)
    shape = shape_of(value)
    if t.used & {1, 2}:
        groups = t.reshape(value, [shape[0], a.group, math.prod(shape[1:]) // a.group])
        return _with_statistics(t, a, groups, [2], [1, shape[1], *[1] * (len(shape) - 2)])
    scale, offset = _affine(t, a, [shape[1]], dtype_of(value))
    flat = t.reshape(value, [shape[0], shape[1], math.prod(shape[2:])])
    result = t.emit(
        relax.op.nn.group_norm(flat, scale, offset, num_groups=a.group, channel_axis=1, axes=[2], epsilon=a.eps)
    )
    return (t.cast(t.reshape(result, shape), dtype_of(a.input)), None, None)


def _batch_norm(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(a.input)
    scale, offset = _affine(t, a, [shape_of(value)[1]], dtype_of(value))
    mean, variance = (t.cast(part, dtype_of(value)) for part in (a.running_mean, a.running_var))
    norm = t.emit(relax.op.nn.batch_norm(value, scale, offset, mean, variance, axis=1, epsilon=a.eps, training=False))
    return (t.cast(t.emit(norm[0]), dtype_of(a.input)), None, None)


def _batch_statistics(t: Translation, a: SimpleNamespace) -> Expression:
    """A batch norm by the statistics of its own input; PyTorch writes instance norms in this form."""
    shape = shape_of(a.input)
    axes = [0, *range(2, len(shape))]
    return _with_statistics(t, a, t.wide(a.input), axes, [1, shape[1], *[1] * (len(shape) - 2)])


def _batch_norm_in_training(t: Translation, a: SimpleNamespace) -> Expression:
    """A batch norm by the statistics of its own input, with the running ones that follow from these."""
    x = Real(t, t.wide(a.input))
    axes = [0, *range(2, len(shape_of(x.value)))]
    count = math.prod(shape_of(x.value)[axis] for axis in axes)
    mean = x.mean(axis=axes, keepdims=True)
    variance = ((x - mean) * (x - mean)).mean(axis=axes) * (count / (count - 1) if count > 1 else math.nan)
    updated = []
    for each, new in ((a.running_mean, mean.squeeze(axis=axes)), (a.running_var, variance)):
        old = Real(t, t.wide(each))
        updated.append(t.cast((old * (1 - a.momentum) + new.cast(old.dtype) * a.momentum).value, dtype_of(each)))
    return (*_batch_statistics(t, a), *updated)


def _with_statistics(
    t: Translation, a: SimpleNamespace, value: Expression, axes: Sequence[int], affine: Sequence[int]
) -> Expression:
    """A norm of `value`, the input in any shape, over `axes`, with its mean and the inverse of its deviation.

    `affine` is the shape in which scale and offset broadcast to the input.
    """
    normed = standardised(t, value, axes, a.eps)
    scale, bias = (None if given is None else t.reshape(given, affine) for given in (a.weight, a.bias))
    result = scaled(t, t.reshape(normed.result, shape_of(a.input)), scale, bias)
    statistics = [
        t.cast(t.reshape(part, stated.shape), stated.dtype) if number in t.used and stated is not None else None
        for number, (part, stated) in enumerate(zip(normed[1:], t.results[1:3], strict=True), 1)
    ]
    return (t.cast(result, dtype_of(a.input)), *statistics)


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("mm.default", "bmm.default", "matmul.default", "mv.default"), _matmul),
    "_int_mm.default": _product_of_bytes,
    "linear.default": _linear,
    **dict.fromkeys(("addmm.default", "baddbmm.default", "addbmm.default", "addmv.default"), _sum_of_product),
    "_trilinear.default": _product_of_three,
    "convolution.default": _convolution,
    "scaled_dot_product_attention.default": _attention,
    **dict.fromkeys(("_softmax.default", "softmax.int"), _softmax),
    **dict.fromkeys(("_log_softmax.default", "log_softmax.int"), _log_softmax),
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_statistics,
    "_native_batch_norm_legit_functional.default": _batch_norm_in_training,
}
"""Operator of aten -> its converter."""
