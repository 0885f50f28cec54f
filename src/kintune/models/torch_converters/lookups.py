"""Operators that look values up: rows of tables, bags of rows, places in sorted sequences, bins."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.indexing import scatter_elements
from kintune.models.expressions import constant_of, dtype_of, shape_of
from kintune.models.formulas import Real, choose
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]

_MEAN, _MAX = 1, 2  # modes of `embedding_bag`; another one is a sum


def _embedding(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.take(a.weight, t.index(a.indices, shape_of(a.weight)[0], 0), axis=0))


def _embedding_bag(t: Translation, a: SimpleNamespace) -> Any:
    """The sum, the mean or the maximum of a table's rows, bag by bag; zeros where a bag holds no row.

    Only the first of the operator's results is computed: the others are for training.
    """
    if t.used - {0}:
        raise NotConvertible("results other than the first")
    result, (places,) = t.results[0], shape_of(a.indices)
    assert result is not None
    bags, width = result.shape
    if not (bags and width and places):
        return (t.full(result.shape, 0, result.dtype), None, None, None)
    rows = t.wide(_embedding(t, a))
    dtype = dtype_of(rows)
    if a.per_sample_weights is not None:
        weights = t.cast(t.reshape(a.per_sample_weights, [places, 1]), dtype)
        rows = t.emit(relax.op.multiply(rows, weights))
    held = _held(t, a, bags, places)
    size = shape_of(held)[1]
    rows = t.reshape(rows, [places // size, size, width])
    counts, summed = Real(t, held), a.mode != _MAX
    kept = choose(counts, Real(t, rows), 0.0 if summed else -math.inf)
    count = counts.cast(dtype).sum(axis=[1])
    found = kept.sum(axis=[1]) if summed else choose(count.cast("bool"), kept.max(axis=[1]), 0.0)
    found = found / count.maximum(1.0) if a.mode == _MEAN else found
    return (t.cast(found.value, result.dtype), None, None, None)


def _held(t: Translation, a: SimpleNamespace, bags: int, places: int) -> Expression:
    """Whether a bag holds a place and the place counts: (bags, size, 1).

    `size` is that of a bag where all are known to be of one size and follow each other, else the number of all places.
    """
    size = _common_size(constant_of(a.offsets), bags, places)
    lead = places // size
    held = t.full((bags, size), True, "bool")
    if lead != bags:
        begin = t.reshape(t.slice(a.offsets, 0, 0, bags), [bags, 1])
        last = [] if a.include_last_offset else [t.const([places], dtype_of(a.offsets))]
        end = t.reshape(t.concat([t.slice(a.offsets, 0, 1, shape_of(a.offsets)[0]), *last], 0), [bags, 1])
        place = Real(t, t.const(np.arange(places)[None], dtype_of(a.offsets)))
        held = ((Real(t, begin) <= place) & (place < Real(t, end))).value
    if a.padding_idx >= 0:
        counts = Real(t, t.reshape(a.indices, [lead, size])).not_equal(a.padding_idx)
        held = (Real(t, held) & counts).value
    return t.reshape(held, [bags, size, 1])


def _common_size(offsets: Any, bags: int, places: int) -> int:
    """The size of every bag, where `offsets` are known and say so; else the number of all places."""
    size = places // bags
    regular = offsets is not None and size * bags == places
    return size if regular and np.array_equal(offsets, np.arange(len(offsets)) * size) else places


def _searchsorted(t: Translation, a: SimpleNamespace) -> Expression:
    if a.sorter is not None:
        raise NotConvertible("a sorter")
    return _count_before(t, a.sorted_sequence, a.self, right=a.right or a.side == "right")


def _bucketize(t: Translation, a: SimpleNamespace) -> Expression:
    return _count_before(t, a.boundaries, a.self, right=a.right)


def _count_before(t: Translation, sequence: Expression, values: Any, *, right: bool) -> Expression:
    """Where values belong in sorted sequences: how many elements of the sequence are before each."""
    if not isinstance(values, relax.Expr):
        values = t.const(values, dtype_of(sequence))
    if 0 in (*shape_of(sequence), *t.result.shape):
        return t.nothing()
    *lead, size = shape_of(sequence)
    sequence = t.reshape(sequence, [*lead, *([1] if lead else []), size])
    values = t.reshape(values, [*shape_of(values), 1])
    after = t.emit((relax.op.greater if right else relax.op.greater_equal)(sequence, values))
    before = t.cast(t.emit(relax.op.logical_not(after)), t.result.dtype)  # not-a-number is after all others
    return t.emit(relax.op.sum(before, axis=[-1]))


def _histogram(t: Translation, a: SimpleNamespace) -> Expression:
    """How many elements are in each of some bins of one width; those outside, and not-a-number, are in none.

    Without a range of its own, the bins reach from the smallest to the largest element.
    """
    size = math.prod(shape_of(a.self))
    if not size:
        return t.nothing()
    value = t.wide(t.reshape(a.self, [size]))
    x = Real(t, value)
    least, most = x.constant(float(a.min)), x.constant(float(a.max))
    if a.min == a.max:
        least, most = x.min(), x.max()
        wide = least.equal(most).cast(x.dtype)  # a single number is in the middle of its bins
        least, most = least - wide, most + wide
    inside = (x >= least) & (x <= most)
    place = choose(inside, (x - least) * float(a.bins) / (most - least), 0.0)
    number = place.cast("int64").minimum(a.bins - 1).maximum(0)  # an infinite range has no places
    counts = t.full([a.bins], 0, x.dtype)
    return t.finish(scatter_elements(t, counts, number.value, inside.cast(x.dtype).value, 0, "add"))


CONVERTERS: dict[str, Converter] = {
    "embedding.default": _embedding,
    **dict.fromkeys(("_embedding_bag.default", "_embedding_bag_forward_only.default"), _embedding_bag),
    **dict.fromkeys(("bucketize.Tensor", "bucketize.Scalar"), _bucketize),
    **dict.fromkeys(("searchsorted.Tensor", "searchsorted.Scalar"), _searchsorted),
    "histc.default": _histogram,
}
"""Operator of aten -> its converter."""
