"""Sets of inputs of a drawn graph with the values of all its tensors, and the same with noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import NodeProto

from kintune_lab.fuzz.evaluation import Evaluator, Refused, Value, attribute, extents_of
from kintune_lab.fuzz.graph import DrawnCase, DrawnGraph
from kintune_lab.fuzz.known import error_of, expected_of, undefined
from kintune_lab.fuzz.values import Array, draw_extreme, draw_ordinary, is_large

__all__ = ["input_sets", "noisy_values", "with_error", "with_noise"]

Values = Mapping[str, Value]

_NOISE = {"float16": 2.0**-10, "float32": 2.0**-22, "float64": 2.0**-51}
_STEPS = frozenset({"Floor", "Ceil", "Round", "Sign", "Cast", "CastLike", "Hardmax", "OneHot", "Equal"})
"""Operators whose results are exact given their operands, also where these are no integers."""

_SEVERAL_STEPS = frozenset(
    {
        *("Attention", "MultiHeadAttention", "QAttention", "LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"),
        *("InstanceNormalization", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization"),
    }
)
"""Operators that round inside, also where their operands are integers: norms divide the error of a mean by a deviation,
which is the root of `epsilon` where all elements are equal.
"""

_WEIGHTED = frozenset({"AffineGrid", "DeformConv", "GridSample", "Resize", "RoiAlign", "Upsample"})
"""Operators whose weights are rounded: integers among their data may cancel to what that leaves."""

_CUT = frozenset({"Resize", "Upsample"})
"""Operators that interpolate integers, and cut what they have computed: 156.99999 becomes 156."""

_TRANSFORMS = frozenset({"DFT", "STFT"})
"""Operators whose error is relative to the largest of their results, also where these would be 0."""

_IN_FLOAT32 = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization"})
"""Operators that are computed in float32 where their operands are float64."""

_EXTREME = 0.35  # share of inputs that get extremes in a further set


def input_sets(drawn: DrawnGraph, evaluator: Evaluator, seed: Sequence[int], wanted: int) -> Iterator[Values]:
    """The values of all tensors with the first set of inputs, and with at most `wanted` - 1 others.

    A set is left out where onnxruntime fails, a result is not defined, or its shape is another one.
    """
    yield drawn.values
    rng = np.random.default_rng(seed)
    for _ in range(wanted - 1):
        values: dict[str, Value] = {}
        for name, leaf in drawn.leaves.items():
            first = drawn.values[name]
            assert not isinstance(first, list)
            draw = draw_extreme if rng.random() < _EXTREME else draw_ordinary
            values[name] = first if leaf.constant else draw(rng, first.dtype.name, first.shape, leaf.role)
        try:
            for node in drawn.nodes:
                if undefined(node, values):
                    raise Refused("a result is not defined")
                values |= expected_of(evaluator, node, values)[0]
        except Refused:
            continue
        if all(extents_of(values[n]) == extents_of(drawn.values[n]) for node in drawn.nodes for n in node.output):
            yield values


def noisy_values(case: DrawnCase, evaluator: Evaluator, values: Values, seed: int) -> dict[str, Value] | None:
    """The values of the tensors of a case with each floating-point number changed by about a unit in the last place.

    A third of the numbers near the largest one become infinite, and a third much smaller, as the order of operations
    decides whether what is computed of them is infinite.

    Returns None where onnxruntime fails.
    """
    rng = np.random.default_rng(seed)
    made = {name for node in case.nodes for name in node.output}
    found = {name: with_noise(rng, value) for name, value in values.items() if name not in made}
    try:
        for node in case.nodes:
            size = _NOISE["float32"] if node.op_type in _IN_FLOAT32 else 0.0
            own = found | _rounded_inside(rng, node, found, size)
            computed, _ = expected_of(evaluator, node, own)
            exact = node.op_type in _STEPS or all(_is_whole(found[name]) for name in node.input if name)
            if node.op_type in _CUT:
                computed = {name: _one_more_or_less(rng, np.asarray(value)) for name, value in computed.items()}
            if node.op_type in _TRANSFORMS:
                computed = {name: _with_common_noise(rng, np.asarray(value)) for name, value in computed.items()}
            error = error_of(node, [own[name] if name else None for name in node.input])
            found |= {
                name: with_error(rng, with_noise(rng, value, whole=exact, least=size), error)
                for name, value in computed.items()
            }
    except Refused:
        return None
    return found


def _rounded_inside(
    rng: np.random.Generator, node: NodeProto, found: Mapping[str, Value], size: float
) -> dict[str, Value]:
    """The operands of a node that it rounds again, with that noise.

    A coordinate of a grid is rounded where it has become one of the image, whose centre has 0 in the grid.  Which
    element is the nearest is not left to noise.
    """
    names = node.input if node.op_type in _SEVERAL_STEPS else node.input[: node.op_type in _WEIGHTED]
    rounded = {name: with_noise(rng, found[name], whole=False, least=size) for name in names if name}
    if node.op_type == "GridSample" and attribute(node, "mode", b"linear") != b"nearest":
        grid = np.asarray(found[node.input[1]])
        rounded[node.input[1]] = with_error(rng, grid, _NOISE[grid.dtype.name])
    return rounded


def _is_whole(value: Value) -> bool:
    """Whether all numbers are integers."""
    return all(bool((each == np.rint(each)).all()) for each in (value if isinstance(value, list) else [value]))


def with_noise(rng: np.random.Generator, value: Value, *, whole: bool = True, least: float = 0.0) -> Value:
    """The value with noise of at `least` this size; integers, and with `whole` floats that are integers, stay."""
    if isinstance(value, list):
        return [_noise_in(rng, each, whole, least) for each in value]
    return _noise_in(rng, np.asarray(value), whole, least)


def with_error(rng: np.random.Generator, value: Value, error: float) -> Value:
    """Floats with an error of this size added or subtracted; others as they are."""
    if not error or isinstance(value, list) or value.dtype.name not in _NOISE:
        return value
    return np.asarray(value + error * rng.choice((-1.0, 1.0), value.shape)).astype(value.dtype)


def _one_more_or_less(rng: np.random.Generator, array: Array) -> Array:
    """Integers with one added or subtracted, within their type; others as they are."""
    if array.dtype.kind not in "iu":
        return array
    limits = np.iinfo(array.dtype)
    moved: Array = np.clip(array.astype(np.int64) + rng.choice((-1, 1), array.shape), limits.min, limits.max)
    return moved.astype(array.dtype)


def _with_common_noise(rng: np.random.Generator, array: Array) -> Array:
    """Floats with noise relative to the largest finite one, below which a third are 0; others as they are."""
    if array.dtype.name not in _NOISE:
        return array
    largest = np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0)
    size = _NOISE[array.dtype.name] * largest
    lost = (array != 0) & (np.abs(array) <= size) & (rng.random(array.shape) < 0.33)
    moved: Array = np.where(lost, 0.0, array + size * rng.choice((-1.0, 1.0), array.shape))
    return moved.astype(array.dtype)


def _noise_in(rng: np.random.Generator, array: Array, whole: bool, least: float) -> Array:
    if array.dtype.name not in _NOISE:
        return array
    size = max(_NOISE[array.dtype.name], least)
    with np.errstate(all="ignore"):
        moved = (array.astype(np.float64) * (1 + size * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype)
        kept = ((array == np.rint(array)) & whole) | ~np.isfinite(array)
        drawn = np.where(is_large(array), rng.random(array.shape), 0.5)
        infinite = np.where(drawn < 0.33, np.copysign(np.inf, array), np.where(drawn > 0.67, array / 64, array))
    return np.asarray(np.where(kept | (drawn != 0.5), infinite, moved)).astype(array.dtype)
