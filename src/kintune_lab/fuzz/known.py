"""What is known of single operators: results that are not defined, and what the two references differ about."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper

from kintune.models.byte_products import NAMES
from kintune.models.evaluation import deviates
from kintune.models.onnx_nodes import subgraphs, used_tensors
from kintune_lab.fuzz.comparing import difference
from kintune_lab.fuzz.evaluation import Evaluator, Value, attribute
from kintune_lab.fuzz.values import Array, is_large

__all__ = [
    "DIFFERENCES",
    "KnownDifference",
    "deviates_from_expected",
    "error_of",
    "expected_of",
    "floor_of",
    "is_overruled",
    "may_lose_infinities",
    "undefined",
]

_Operands = list[Any]
_Outputs = dict[str, Value]


class KnownDifference(NamedTuple):
    """Where onnxruntime and ONNX's reference differ about operators, for versions `before` this one, and why.

    What onnxruntime computes is expected, unless `expected` says otherwise.
    """

    operators: frozenset[str]
    reason: str
    applies: Callable[[NodeProto, _Operands], bool] = lambda node, operands: True
    before: int = 1 << 30
    expected: Callable[[Evaluator, NodeProto, Mapping[str, Value], _Outputs], _Outputs] | None = None


def _has_nan(node: NodeProto, operands: _Operands) -> bool:
    return any(isinstance(each, np.ndarray) and each.dtype.kind == "f" and np.isnan(each).any() for each in operands)


def _has_special(node: NodeProto, operands: _Operands) -> bool:
    return any(
        isinstance(each, np.ndarray) and each.dtype.kind == "f" and not np.isfinite(each).all() for each in operands
    )


def _has_large(node: NodeProto, operands: _Operands) -> bool:
    """Whether squares or exponentials of operands may be infinite, or operands are."""
    return any(
        isinstance(each, np.ndarray)
        and each.dtype.kind == "f"
        and not (np.abs(each.astype(np.float64)) < float(np.finfo(each.dtype).max) ** 0.3).all()
        for each in operands
    )


def _wraps(node: NodeProto, operands: _Operands) -> bool:
    """Whether onnxruntime quantises blocks with quotients beyond 32-bit integers, which wrap there."""
    if not attribute(node, "block_size", 0):
        return False
    data, scale = (np.abs(each.astype(np.float64)) for each in operands[:2])
    return bool(data.size and scale.size and data.max() / max(scale.min(), np.finfo(np.float64).tiny) >= 1 << 31)


def _sums_far(node: NodeProto, operands: _Operands) -> bool:
    """Whether sums of 64-bit integers may have more digits than float64 holds."""
    return any(isinstance(each, np.ndarray) and deviates("ReduceSum", each.dtype, each) for each in operands)


def _by_reference(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    return {**computed, **(evaluator.reference(node, values) or {})}


def _of_window(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """The greatest elements of windows: NaN where one of them is, -inf where all are.

    onnxruntime finds these places, as the greatest of marks.
    """
    name, data = node.output[0], np.asarray(values[node.input[0]])
    found = np.asarray(computed[name])
    for marks, special in (((data != -np.inf), -np.inf), (~np.isnan(data), np.nan)):
        given = (
            -1.0 * marks if np.isnan(special) else 1.0 * marks
        )  # the greatest is 0 where one is NaN, or all are -inf
        greatest = np.asarray(evaluator.run(node, {**values, node.input[0]: given.astype(data.dtype)})[name])
        found = np.where(greatest == 0, special, found).astype(data.dtype)
    return {**computed, name: found}


def _of_places(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """The places of extremes: of NaN, if that is the first element, and else of a number (docs/models.md)."""
    data, axis = np.asarray(values[node.input[0]]), attribute(node, "axis", 0)
    first = np.isnan(np.take(data, [0], axis))
    worst = np.inf if node.op_type == "ArgMin" else -np.inf
    numbers = np.where(np.isnan(data), worst, data).astype(data.dtype)
    found = np.asarray(evaluator.run(node, {**values, node.input[0]: numbers})[node.output[0]])
    return {node.output[0]: np.where(first.reshape(found.shape), 0, found)}


def _of_whole(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """A result for indices without their fractions."""
    return evaluator.run(node, {**values, node.input[0]: np.trunc(np.asarray(values[node.input[0]]))})


def _has_fractions(node: NodeProto, operands: _Operands) -> bool:
    return bool(operands[0].dtype.kind == "f" and (operands[0] != np.trunc(operands[0])).any())


def _of_softmax(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """A quantised softmax along the last axis, computed in float64."""
    data, step, _, out_step, out_zero = (np.asarray(values[name]).astype(np.float64) for name in node.input)
    powers = np.exp((data - data.max(axis=-1, keepdims=True)) * step)
    dtype = np.asarray(computed[node.output[0]]).dtype
    shares = np.rint(powers / powers.sum(axis=-1, keepdims=True) / out_step) + out_zero
    return {node.output[0]: np.clip(shares, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)}


def _of_variance(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """A normalisation by mean and deviation, in float64."""
    data = np.asarray(values[node.input[0]])
    wide, axes = data.astype(np.float64), tuple(attribute(node, "axes", (0, 2, 3)))
    with np.errstate(all="ignore"):
        centred = wide - wide.mean(axes, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axes, keepdims=True))
        return {node.output[0]: (centred / (deviation + 1e-9)).astype(data.dtype)}


def _of_equal_planes(
    evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs
) -> _Outputs:
    """A normalisation of planes with the bias alone where all elements of a plane are equal."""
    data, _, bias = (np.asarray(values[name]) for name in node.input)
    axes = tuple(range(2, data.ndim))
    low, high = data.min(axes, keepdims=True), data.max(axes, keepdims=True)
    found = np.asarray(computed[node.output[0]])
    by_channel = bias.reshape(1, -1, *[1] * len(axes))
    return {node.output[0]: np.where(np.isfinite(high) & (low == high), by_channel, found).astype(found.dtype)}


def _has_equal_planes(node: NodeProto, operands: _Operands) -> bool:
    data = np.asarray(operands[0])
    axes = tuple(range(2, data.ndim))
    return bool(data.size and (data.min(axes) == data.max(axes)).any()) and not _has_large(node, operands)


def _is_signed_and_smoothed(node: NodeProto, operands: _Operands) -> bool:
    return bool(attribute(node, "antialias", 0)) and np.asarray(operands[0]).dtype == np.int8


def _of_signed_bytes(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], _: _Outputs) -> _Outputs:
    """What becomes of bytes 128 larger, less 128: weights add up to one."""
    name = node.input[0]
    moved = (np.asarray(values[name]).astype(np.int16) + 128).astype(np.uint8)
    found = evaluator.run(node, {**values, name: moved})
    return {key: (np.asarray(value).astype(np.int16) - 128).astype(np.int8) for key, value in found.items()}


def _of_responses(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], computed: _Outputs) -> _Outputs:
    """A normalisation by the squares of neighbouring channels, in float32 at least."""
    data = np.asarray(values[node.input[0]])
    wide = data.astype(np.promote_types(data.dtype, np.float32))
    size, channels = attribute(node, "size"), data.shape[1]
    alpha, beta, bias = (attribute(node, *each) for each in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    with np.errstate(all="ignore"):
        squares = np.pad(np.square(wide), [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (data.ndim - 2)])
        total = np.sum([squares[:, start : start + channels] for start in range(size)], axis=0)
        return {node.output[0]: (wide / (bias + alpha / size * total) ** beta).astype(data.dtype)}


DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        frozenset({"ReduceMax", "ReduceMin"}),
        "onnxruntime ignores most NaN, the reference does not: NaN is expected (docs/models.md)",
        _has_special,
        expected=_by_reference,
    ),
    KnownDifference(
        frozenset({"MaxPool", "GlobalMaxPool"}),
        "onnxruntime ignores most NaN, and has the least finite number for -inf: NaN and -inf are expected "
        "(docs/models.md); the reference has other shapes",
        _has_special,
        expected=_of_window,
    ),
    KnownDifference(
        frozenset({"ArgMax", "ArgMin"}),
        "the reference takes the first NaN, onnxruntime the first number unless NaN comes first (docs/models.md), or "
        "another place, where it has instructions for all of a tensor",
        _has_nan,
        expected=_of_places,
    ),
    KnownDifference(frozenset({"Hardmax"}), "the reference and onnxruntime treat NaN as their ArgMax does", _has_nan),
    KnownDifference(
        frozenset({"OneHot"}),
        "onnxruntime finds no place for an index with a fraction, which the standard cuts",
        _has_fractions,
        expected=_of_whole,
    ),
    KnownDifference(
        frozenset({"Softmax", "LogSoftmax", "Hardmax"}),
        "the reference computes one axis at all versions; before 13 it is all axes from `axis` on",
        before=13,
    ),
    KnownDifference(
        frozenset({"LSTM", "GRU", "RNN"}),
        "the reference leaves out activations, directions, lengths of sequences and clipping",
    ),
    KnownDifference(
        frozenset({"BatchNormalization"}),
        "the reference updates the statistics before version 14 as in training",
        before=14,
    ),
    KnownDifference(
        frozenset({"MaxPool", "GlobalMaxPool"}), "the reference drops axes, and windows that begin in the padding"
    ),
    KnownDifference(
        frozenset({"Shrink"}),
        "onnxruntime computes float64 and integers in float32",
        lambda node, operands: operands[0].dtype == np.float64 or operands[0].dtype.kind in "iu",
        expected=_by_reference,
    ),
    KnownDifference(
        frozenset({"PRelu"}),
        "onnxruntime has 0 or NaN for zero times a slope that is not finite; NaN is expected (docs/models.md)",
        lambda node, operands: _has_special(node, operands[1:]),
        expected=_by_reference,
    ),
    KnownDifference(
        frozenset({"ReduceSum", "ReduceL1", "ReduceSumSquare"}),
        "onnxruntime sums 64-bit integers in float64",
        _sums_far,
        expected=_by_reference,
    ),
    KnownDifference(
        frozenset({"MeanVarianceNormalization"}),
        "onnxruntime adds nothing to the deviation, so that equal elements, or denormal ones, are not finite",
        expected=_of_variance,
    ),
    KnownDifference(
        frozenset({"Resize"}),
        "with antialias, onnxruntime makes 0 of negative bytes",
        _is_signed_and_smoothed,
        expected=_of_signed_bytes,
    ),
    KnownDifference(
        frozenset({"InstanceNormalization"}),
        "onnxruntime multiplies before it subtracts the mean, so that equal elements become what rounding leaves",
        _has_equal_planes,
        expected=_of_equal_planes,
    ),
    KnownDifference(
        frozenset({"QLinearSoftmax"}),
        "onnxruntime's table of exponentials is so coarse that values 0.0007 steps from the middle are rounded wrongly",
        expected=_of_softmax,
    ),
    KnownDifference(
        frozenset({"LRN"}),
        "onnxruntime's running sum over channels keeps NaN and the error of large squares; the reference mixes images",
        expected=_of_responses,
    ),
    KnownDifference(frozenset({"LpNormalization"}), "the reference sums values without their absolute value for p=1"),
    KnownDifference(
        frozenset({"GridSample"}), "the reference clips the cubic's neighbours in other places at the border"
    ),
    KnownDifference(
        frozenset({"SplitToSequence", "Loop", "Scan"}), "the reference has other shapes for results of one element"
    ),
    KnownDifference(
        frozenset({"QuantizeLinear", "DynamicQuantizeLinear"}),
        "numbers beyond the range of 32-bit integers saturate in onnxruntime and wrap in the reference",
        _has_large,
    ),
    KnownDifference(
        frozenset({"InstanceNormalization", "SoftmaxCrossEntropyLoss", "ReduceL2", "Clip", "ScatterElements"}),
        "the order of operations decides whether an intermediate result is infinite, or NaN is compared",
        _has_large,
    ),
)
"""What the references are known to differ about, the first that applies."""

_OVERRULED = frozenset(operator for known in DIFFERENCES if known.expected for operator in known.operators)


def expected_of(
    evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value], *, both: bool = False
) -> tuple[_Outputs, list[str]]:
    """The outputs that a node must have, and what the references differ about if `both` are asked.

    Raises:
        Refused: onnxruntime does not take the node, or fails.
    """
    computed = evaluator.run(node, values)
    known = _known(evaluator, node, values)
    if known is not None:
        return (known.expected(evaluator, node, values, computed) if known.expected else computed), []
    reference = evaluator.reference(node, values) if both else None
    found = [difference(value, reference[name]) for name, value in computed.items()] if reference else []
    return computed, [f"{node.op_type}: {text}" for text in found if text][:1]


def _known(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value]) -> KnownDifference | None:
    operands = [values[name] for name in node.input if name]
    for known in DIFFERENCES:
        if node.op_type in known.operators and evaluator.opset < known.before and known.applies(node, operands):
            return known
    return None


def is_overruled(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value]) -> bool:
    """Whether another result is expected of a node than onnxruntime's: then it runs in no graph inside of a node."""
    known = _known(evaluator, node, values)
    return known is not None and known.expected is not None


def _inside(node: NodeProto) -> Iterator[str]:
    """The operators of the graphs inside of a node."""
    for graph in subgraphs(node):
        for inner in graph.node:
            yield inner.op_type
            yield from _inside(inner)


def undefined(node: NodeProto, values: Mapping[str, Value]) -> bool:
    """Whether the standard does not say what a node computes, or onnxruntime deviates from it in a graph inside."""
    inside = set(_inside(node))
    if not inside.isdisjoint(_UNDEFINED.keys() | _OVERRULED):
        used = [values[name] for name in used_tensors(node)]
        return _has_special(node, used) or _sums_far(node, used)
    test = _UNDEFINED.get(node.op_type)
    with np.errstate(all="ignore"):
        return test is not None and test(node, [values[name] if name else None for name in node.input])


_FLOORS = (
    (re.compile("gelu", re.IGNORECASE), 1e-6),
    (re.compile("sigmoid|tanh|erf|lstm|gru|rnn", re.IGNORECASE), 1e-7),
)
"""How far from a value a result may be however small that is: onnxruntime's polynomials are; and of `x * (1 + tanh(y))`
half a unit of the 1 times x is left where the tanh is nearly -1.
"""

_EXPONENTIALS = ("Celu", "Elu", "Selu")

_LOSES_INFINITIES = re.compile("MatMulNBits|Attention")
"""Zero points are taken off with a sum of the data: an infinity may be NaN.  A weight of attention is 2^-125 for zero:
NaN may be an infinity (docs/models.md).
"""
_ROUNDING = 2.0**-24
_LINEAR = re.compile("MatMul|Gemm|Conv")
"""Two of these may be composed to one (docs/models.md)."""


def floor_of(operators: Collection[str]) -> float:
    """How far from each value a result of operators may be, whatever its size."""
    return next((floor for pattern, floor in _FLOORS if any(map(pattern.search, operators))), 0.0)


def error_of(node: NodeProto, operands: _Operands) -> float:
    """How far results of a node may be from what is defined, whatever their size; what follows may magnify that.

    Zero points of a MatMulNBits are taken off with a sum of its data (docs/models.md), so its error is relative to that
    sum.  The middle of a grid's axis may be as far from 0 as a unit in the last place of 1, times a factor of the map.
    What is left of an exponential minus 1 is off by the rounding of nearly 1, in onnxruntime and here.
    """
    if node.op_type in _EXPONENTIALS:
        return float(np.finfo(operands[0].dtype).eps) / 4
    if node.op_type == "AffineGrid":
        return float(np.abs(operands[0]).max(initial=0.0) * np.finfo(operands[0].dtype).eps)
    if node.op_type != "MatMulNBits":
        return floor_of([node.op_type])
    data, scales = (np.abs(each.astype(np.float64)) for each in (operands[0], operands[2]))
    sums = data[np.isfinite(data)].max(initial=0.0) * data.shape[-1] * scales.max(initial=0.0)
    return float(sums * 2 ** attribute(node, "bits", 4) * _ROUNDING)


def may_lose_infinities(operators: Collection[str]) -> bool:
    """Whether NaN may stand for an infinity in results of operators, or an infinity for NaN."""
    return any(map(_LOSES_INFINITIES.search, operators)) or sum(map(bool, map(_LINEAR.search, operators))) > 1


def deviates_from_expected(evaluator: Evaluator, node: NodeProto, values: Mapping[str, Value]) -> bool:
    """Whether onnxruntime may compute another result of a node than is expected, so that it must not run there.

    Products of bytes saturate in its usual sessions, on CPUs without VNNI.
    """
    if node.op_type in NAMES:
        return True
    if not is_overruled(evaluator, node, values):
        return False
    computed = evaluator.run(node, values)
    return any(bool(difference(value, values[name])) for name, value in computed.items())


def _is_denormal(values: Array) -> bool:
    """Whether the largest of the values divided by 255 is no normal number."""
    return bool(0 < np.abs(values).max(initial=0.0) < 256 * float(np.finfo(values.dtype).tiny))


def _cast(node: NodeProto, operands: _Operands) -> bool:
    given = operands[0]
    target = (
        np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node, "to"))) if len(operands) == 1 else operands[1].dtype
    )
    return given.dtype.kind == "f" and target.kind in "iu" and not _fits(given, target)


def _fits(given: Array, target: np.dtype[Any]) -> bool:
    limits = np.iinfo(target)
    wide = np.trunc(given.astype(np.float64))
    return bool(np.isfinite(wide).all() and (wide >= limits.min).all() and (wide < float(limits.max)).all())


def _divides_by_zero(node: NodeProto, operands: _Operands) -> bool:
    one, other = operands
    if other.dtype.kind not in "iu":
        return node.op_type == "Mod" and not attribute(node, "fmod", 0)
    least = other.dtype.kind == "i" and (one == np.iinfo(one.dtype).min).any() and (other == -1).any()
    return bool(not other.all() or least)


def _sum_overflows(node: NodeProto, operands: _Operands) -> bool:
    """Whether a sum or product of all integers, or a sum of squares, may be out of the range of their type."""
    data = operands[0]
    if data.dtype.kind not in "iu":
        return False
    wide = np.abs(data.astype(np.float64))
    if node.op_type == "ReduceProd":
        largest = np.prod(np.maximum(wide, 1))
    else:
        largest = np.sum(wide * wide if node.op_type == "ReduceSumSquare" else wide)
    return bool(largest > float(np.iinfo(data.dtype).max))


def _is_empty(node: NodeProto, operands: _Operands) -> bool:
    return bool(operands[0].size == 0)


def _power(node: NodeProto, operands: _Operands) -> bool:
    base, exponent = operands
    if base.dtype.kind == "f":
        return False
    with np.errstate(all="ignore"):
        result = np.power(base.astype(np.float64), exponent.astype(np.float64))
    return bool((np.asarray(exponent) < 0).any()) or not _fits(result, base.dtype)


def _shifts_far(node: NodeProto, operands: _Operands) -> bool:
    return bool((operands[1] >= 8 * operands[0].dtype.itemsize).any())


def _has_overflowing(node: NodeProto, operands: _Operands) -> bool:
    """Whether operands are finite, and so large that products of them may not be."""
    floats = [each for each in operands if isinstance(each, np.ndarray) and each.dtype.kind == "f"]
    return any(bool(is_large(each).any()) for each in floats)


def _overflows(node: NodeProto, operands: _Operands) -> bool:
    """Whether operands are infinite, or so large that products of them may be."""
    return _has_special(node, operands) or _has_overflowing(node, operands)


def _hides(node: NodeProto, operands: _Operands) -> bool:
    """Whether a causal mask may hide what is not finite: a weight of 0 times that is not read (docs/models.md)."""
    is_causal = any(attribute(node, name, 0) for name in ("is_causal", "unidirectional"))
    return is_causal and _has_special(node, operands)


def _transposes_beside_vector(node: NodeProto, operands: _Operands) -> bool:
    """Whether a matrix is transposed whose other operand is a vector: onnxruntime reads it as it lies in memory."""
    return min(each.ndim for each in operands) < 2 and any(attribute(node, name, 0) for name in ("transA", "transB"))


def _writes_twice(node: NodeProto, operands: _Operands) -> bool:
    if attribute(node, "reduction", b"none") != b"none":
        return False
    data, indices = operands[0], operands[1]
    if node.op_type == "ScatterND":
        sizes = np.array(data.shape[: indices.shape[-1]], np.int64)
        flat = np.where(indices < 0, indices + sizes, indices).reshape(-1, indices.shape[-1])
        return len(np.unique(flat, axis=0)) < len(flat)
    axis = attribute(node, "axis", 0)
    places = np.sort(np.where(indices < 0, indices + data.shape[axis], indices), axis=axis)
    return bool((np.diff(places, axis=axis) == 0).any())


_UNDEFINED: dict[str, Callable[[NodeProto, _Operands], bool]] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Div": _divides_by_zero,
    "Mod": _divides_by_zero,
    "Pow": _power,
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceL1", "ReduceSumSquare"), _sum_overflows),
    "BitShift": _shifts_far,
    "Scatter": _writes_twice,
    "ScatterElements": _writes_twice,
    "ScatterND": _writes_twice,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _overflows),
    **dict.fromkeys(("ConvTranspose", "Resize", "Upsample"), _has_special),
    **dict.fromkeys(("DFT", "STFT"), _has_large),
    "BlackmanWindow": lambda node, operands: bool(operands[0] < 3),
    **dict.fromkeys(("GroupNormalization", "MeanVarianceNormalization", "RMSNormalization"), _has_overflowing),
    "LayerNormalization": lambda node, operands: (
        _has_overflowing(node, operands) or (len(node.output) > 1 and _has_special(node, operands))
    ),
    "Einsum": lambda node, operands: len(operands) > 2 and _has_special(node, operands),
    "FusedMatMul": _transposes_beside_vector,
    **dict.fromkeys(("TopK", "Hardmax"), _has_nan),
    "BitCast": _has_nan,
    "Unique": _has_nan,
    "QuantizeLinear": lambda node, operands: _has_nan(node, operands) or _wraps(node, operands),
    **dict.fromkeys(
        ("DynamicQuantizeLinear", "DynamicQuantizeMatMul"),
        lambda node, operands: _has_special(node, operands) or _is_denormal(operands[0]) or _is_empty(node, operands),
    ),
    "DynamicQuantizeLSTM": lambda node, operands: _overflows(node, operands) or _is_denormal(operands[0]),
    **dict.fromkeys(("MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"), _is_empty),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "QAttention"), _hides),
    "MaxPool": lambda node, operands: len(node.output) > 1 and _has_special(node, operands),
    **dict.fromkeys(
        ("DeformConv", "GridSample", "MaxRoiPool", "RoiAlign"),
        lambda node, operands: _has_special(node, operands) or _is_empty(node, operands),
    ),
    **dict.fromkeys(("AffineGrid", "Det"), _has_special),
}
"""Operators whose results are not defined for some values, or depend on how a runtime computes.

Not defined are numbers out of the range of an integer type, integers divided by zero, elements written twice, the bits
and the order of NaN (onnxruntime's Hardmax treats it in half precision as it does not in float32), and coordinates that
are no numbers.  onnxruntime has NaN for the mean of infinities, and an infinity may meet another in a determinant.  In
a product of three tensors an infinity may meet another before it is summed.  How a variance is computed decides whether
an infinite one leaves the bias or NaN.  onnxruntime clamps NaN and infinities in recurrent layers; zeros between the
weights of a transposed convolution make NaN of infinities, as Fourier transforms and resizing do; short windows are
rounding alone.  It does not write quantised products of no elements, and ends the process where RoiAlign has an image
without pixels.
"""
