"""Writes by a mask, by numbers of elements, and by indices of one axis; each as one of the writes in `tensors`."""

from __future__ import annotations

import math
from types import SimpleNamespace

from tvm import relax

from kintune.models.expressions import shape_of
from kintune.models.torch_converters import tensors
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS"]

_index_put = tensors.CONVERTERS["index_put.default"]
_scatter_reduce = tensors.CONVERTERS["scatter_reduce.two"]


def _masked_scatter(t: Translation, a: SimpleNamespace) -> Expression:
    """Elements replaced where a mask is set, by those of a source in order."""
    shape = t.result.shape
    value, mask = t.expand(a.self, shape), t.expand(t.cast(a.mask, "bool"), shape)
    chosen = tensors.taken_in_order(t, mask, t.reshape(a.source, [math.prod(shape_of(a.source))]), 0)
    return t.emit(relax.op.where(mask, t.reshape(chosen, shape), value))


def _put(t: Translation, a: SimpleNamespace) -> Expression:
    """Elements replaced, or added to, at their numbers in the flattened tensor."""
    shape = shape_of(a.self)
    places, values = (t.reshape(value, [math.prod(shape_of(value))]) for value in (a.index, a.source))
    flat = t.reshape(a.self, [math.prod(shape)])
    arguments = SimpleNamespace(self=flat, indices=[places], values=values, accumulate=a.accumulate)
    return t.reshape(_index_put(t, arguments), shape)


def _index_reduce(t: Translation, a: SimpleNamespace) -> Expression:
    """Slices combined with those of a source, at indices of one axis."""
    shape = shape_of(a.source)
    if 0 in shape:
        return a.self
    axis = a.dim % max(len(shape), 1)
    along = [size if i == axis else 1 for i, size in enumerate(shape)]
    index = t.expand(t.reshape(a.index, along), shape)
    arguments = dict(vars(a), index=index, src=a.source)
    return _scatter_reduce(t, SimpleNamespace(**arguments))


CONVERTERS: dict[str, Converter] = {
    "masked_scatter.default": _masked_scatter,
    "put.default": _put,
    "index_reduce.default": _index_reduce,
}
"""Operator of aten -> its converter."""
