"""Norms: subtract a mean, divide by a deviation, scale and shift.

Statistics of half precision are computed in float32.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import relax

from kintune.models.converters.node import Node
from kintune.models.converters.registration import MICROSOFT, OnnxOperator
from kintune.models.emitter import Emitter
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real, choose, power

__all__ = ["OPERATORS", "Standardised", "scaled", "standardised"]


class Standardised(NamedTuple):
    """A tensor minus its mean, divided by its standard deviation; both statistics keep their dimensions."""

    result: Any
    mean: Any
    inverse_deviation: Any


def standardised(t: Emitter, tensor: Any, axes: Sequence[int], epsilon: float) -> Standardised:
    """The tensor minus its mean over `axes`, divided by its standard deviation; `epsilon` is added to the variance.

    The variance is the mean square of the differences to the mean, so that a mean far from zero costs no accuracy.
    """
    x, kept = Real(t, tensor), {"axis": list(axes), "keepdims": True}
    mean = x.mean(**kept)
    centred = x - mean
    inverse = ((centred * centred).mean(**kept) + epsilon).rsqrt()
    return Standardised((centred * inverse).value, mean.value, inverse.value)


def scaled(t: Emitter, tensor: Any, scale: Any, bias: Any) -> Any:
    """`tensor * scale + bias`, broadcasting, in the type of `tensor`; each of them may be None."""
    x = Real(t, tensor)
    x = x if scale is None else x * Real(t, scale).cast(x.dtype)
    return (x if bias is None else x + Real(t, bias).cast(x.dtype)).value


def _from(axis: int, rank: int) -> list[int]:
    """The axes from `axis` (which may count from the end) to the last."""
    return list(range(axis + rank if axis < 0 else axis, rank))


def _layer_normalization(node: Node) -> relax.Expr:
    data, scale, bias = node.required(0), node.operand(1), node.operand(2)
    shape, dtype = shape_of(data), dtype_of(data)
    axes = _from(int(node.attributes.get("axis", -1)), len(shape))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    wide = node.wide(data)
    normed_shape = shape[axes[0] :]
    fits = scale is not None and shape_of(scale) == normed_shape
    if node.outputs == 1 and fits and (bias is None or shape_of(bias) == normed_shape):
        kind = dtype_of(wide)
        scale = node.cast(scale, kind)
        bias = relax.op.zeros(normed_shape, kind) if bias is None else node.cast(bias, kind)
        result = node.emit(relax.op.nn.layer_norm(wide, scale, node.emit(bias), axes, epsilon))
        return node.cast(result, dtype)
    normed = standardised(node, wide, axes, epsilon)
    result = node.cast(scaled(node, normed.result, scale, bias), dtype)
    statistics = (node.cast(each, "float32") for each in (normed.mean, normed.inverse_deviation))  # of float64, too
    return relax.Tuple([result, *statistics])


def _rms(node: Node, data: relax.Expr, scale: relax.Expr | None, axes: Sequence[int], epsilon: float) -> Standardised:
    """The tensor divided by its root mean square, and scaled; `mean` of the result is the mean square."""
    wide = node.wide(data)
    x = Real(node, wide)
    square = (x * x).mean(axis=list(axes), keepdims=True)
    inverse = (square + epsilon).rsqrt()
    result = scaled(node, (x * inverse).value, scale, None)
    return Standardised(node.cast(result, dtype_of(data)), square.value, inverse.value)


def _rms_normalization(node: Node) -> relax.Expr:
    data = node.required(0)
    axes = _from(int(node.attributes.get("axis", -1)), len(shape_of(data)))
    normed = _rms(node, data, node.operand(1), axes, float(node.attributes.get("epsilon", 1e-5)))
    if node.outputs == 1:
        return normed.result
    return relax.Tuple([normed.result, normed.inverse_deviation])


def _skip_sum(node: Node, bias: relax.Expr | None) -> relax.Expr:
    total = node.emit(relax.op.add(node.required(0), node.required(1)))
    return total if bias is None else node.emit(relax.op.add(total, bias))


def _skip_layer_normalization(node: Node) -> relax.Expr:
    data = _skip_sum(node, node.operand(4))
    axes = [len(shape_of(data)) - 1]
    epsilon = float(node.attributes.get("epsilon", 1e-12))
    given = Node(node.builder, (data, *node.operands[2:4]), {"axis": -1, "epsilon": epsilon}, node.opset, 1)
    if node.outputs == 1:
        return _layer_normalization(given)
    normed = standardised(node, node.wide(data), axes, epsilon)
    result = node.cast(scaled(node, normed.result, node.operand(2), node.operand(3)), dtype_of(data))
    return relax.Tuple([result, normed.mean, normed.inverse_deviation, data])


def _skip_rms_normalization(node: Node) -> relax.Expr:
    data = _skip_sum(node, node.operand(3))
    axes = [len(shape_of(data)) - 1]
    normed = _rms(node, data, node.operand(2), axes, float(node.attributes.get("epsilon", 1e-12)))
    return relax.Tuple([normed.result, normed.mean, normed.inverse_deviation, data])


def _batch_normalization(node: Node) -> relax.Expr:
    data, scale, bias, mean, variance = (node.required(index) for index in range(5))
    dtype = dtype_of(data)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    if node.attributes.get("training_mode", 0):
        return _batch_normalization_in_training(node, epsilon)
    if node.opset < 14 and node.outputs > 1:
        raise ValueError("it trains (outputs beyond the first); export the network in evaluation mode")
    wide = node.wide(data)
    kind = dtype_of(wide)
    scale, bias, mean, variance = (node.cast(values, kind) for values in (scale, bias, mean, variance))
    if len(shape_of(mean)) == 1:
        normed = node.emit(relax.op.nn.batch_norm(wide, scale, bias, mean, variance, axis=1, epsilon=epsilon))
        return node.cast(node.emit(relax.TupleGetItem(normed, 0)), dtype)
    factor = ((Real(node, variance) + epsilon).rsqrt() * Real(node, scale)).value
    # statistics of each element: `spatial` is 0
    return node.cast(scaled(node, node.emit(relax.op.subtract(wide, mean)), factor, bias), dtype)


def _batch_normalization_in_training(node: Node, epsilon: float) -> relax.Expr:
    data, scale, bias, *running = (node.required(index) for index in range(5))
    rank = len(shape_of(data))
    axes = [axis for axis in range(rank) if axis != 1]
    wide = node.wide(data)
    normed = standardised(node, wide, axes, epsilon)
    result = scaled(node, normed.result, node.per_channel(scale, rank), node.per_channel(bias, rank))
    mean = Real(node, normed.mean)
    centred, momentum = Real(node, wide) - mean, float(node.attributes.get("momentum", 0.9))
    updated = []
    for old, new in zip(running, (mean.squeeze(axis=axes), (centred * centred).mean(axis=axes)), strict=True):
        kept = Real(node, node.wide(old)) * momentum
        updated.append(node.cast((kept + new.cast(kept.dtype) * (1 - momentum)).value, dtype_of(old)))
    return relax.Tuple([node.cast(result, dtype_of(data)), *updated])


def _instance_normalization(node: Node) -> relax.Expr:
    data = node.required(0)
    rank = len(shape_of(data))
    normed = standardised(node, node.wide(data), range(2, rank), float(node.attributes.get("epsilon", 1e-5)))
    scale, bias = (node.per_channel(node.required(index), rank) for index in (1, 2))
    return node.cast(scaled(node, normed.result, scale, bias), dtype_of(data))


def _group_normalization(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    groups = int(node.attributes["num_groups"])
    wide = node.emit(relax.op.reshape(node.wide(data), [shape[0], groups, -1]))
    normed = standardised(node, wide, [2], float(node.attributes.get("epsilon", 1e-5))).result
    scale, bias = node.required(1), node.required(2)
    if shape_of(scale) == (shape[1],):  # since operator set 21
        normed = node.emit(relax.op.reshape(normed, shape))
    scale, bias = (node.per_channel(values, len(shape_of(normed))) for values in (scale, bias))
    result = scaled(node, normed, scale, bias)
    return node.cast(node.emit(relax.op.reshape(result, shape)), dtype_of(data))


def _mean_variance_normalization(node: Node) -> relax.Expr:
    data = node.required(0)
    if "across_channels" in node.attributes or "normalize_variance" in node.attributes:
        raise ValueError("attributes of before operator set 9 are not supported")
    axes = list(node.integers("axes", (0, 2, 3)))
    x, kept = Real(node, node.wide(data)), {"axis": axes, "keepdims": True}
    centred = x - x.mean(**kept)
    return node.cast((centred / ((centred * centred).mean(**kept).sqrt() + 1e-9)).value, dtype_of(data))


def _lp_normalization(node: Node) -> relax.Expr:
    data, order = node.required(0), int(node.attributes.get("p", 2))
    x = Real(node, node.wide(data))
    norm = power(power(abs(x), order).sum(axis=int(node.attributes.get("axis", -1)), keepdims=True), 1 / order)
    # where the norm is 0, so is the result: elements may be small numbers whose powers are 0
    return node.cast((x / choose(norm.equal(0.0), math.inf, norm)).value, dtype_of(data))


def _local_response_normalization(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    size = int(node.attributes["size"])
    before, after = (size - 1) // 2, size // 2
    x = Real(node, node.wide(data))
    padded = node.emit(relax.op.nn.pad((x * x).value, [0, 0, before, after] + [0, 0] * (len(shape) - 2)))
    parts = [Real(node, node.slice(padded, 1, start, start + shape[1])) for start in range(size)]
    total = functools.reduce(operator.add, parts)
    scaled = total * (float(node.attributes.get("alpha", 1e-4)) / size) + float(node.attributes.get("bias", 1.0))
    return node.cast((x / scaled.power(float(node.attributes.get("beta", 0.75)))).value, dtype_of(data))


def _dropout(node: Node) -> relax.Expr:
    data = node.required(0)
    if 2 in node.constants and (training := node.constant(2)) is not None and bool(training):
        ratio = node.constant(1)
        if ratio is None or float(ratio) != 0.0:
            raise ValueError("it drops at random (training_mode is true); export the network in evaluation mode")
    if node.opset < 7 and not node.attributes.get("is_test", 0):
        raise ValueError("it drops at random (is_test is 0); export the network in evaluation mode")
    if node.outputs == 1:
        return data
    filled = relax.op.ones if node.opset >= 12 else relax.op.zeros  # as in onnxruntime; the standard leaves it open
    mask = filled(shape_of(data), "bool" if node.opset >= 10 else dtype_of(data))
    return relax.Tuple([data, node.emit(mask)])


OPERATORS = (
    OnnxOperator("BatchNormalization", _batch_normalization),
    OnnxOperator("Dropout", _dropout),
    OnnxOperator("Dropout", _dropout, since=12, constants={1: "ratio", 2: "training mode"}),
    OnnxOperator("GroupNormalization", _group_normalization),
    OnnxOperator("InstanceNormalization", _instance_normalization),
    OnnxOperator("LRN", _local_response_normalization),
    OnnxOperator("LayerNormalization", _layer_normalization),
    OnnxOperator("LpNormalization", _lp_normalization),
    OnnxOperator("MeanVarianceNormalization", _mean_variance_normalization),
    OnnxOperator("RMSNormalization", _rms_normalization),
    OnnxOperator("SimplifiedLayerNormalization", _rms_normalization),
    OnnxOperator("SkipLayerNormalization", _skip_layer_normalization, domain=MICROSOFT),
    OnnxOperator("SkipSimplifiedLayerNormalization", _skip_rms_normalization, domain=MICROSOFT),
)
