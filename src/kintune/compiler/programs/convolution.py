"""Recognises a convolution that Winograd's transforms can compute, by what its blocks read and write."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm

from kintune.compiler.programs.blocks import Nest, constant_shape, is_offset_of, loads_in, nests_of
from kintune.compiler.programs.zero_padding import zero_padding
from kintune.compiler.space.weights import weight_positions

__all__ = ["Convolution", "find_convolution"]

_KERNEL = 3
_TYPE = "float32"


class Convolution(NamedTuple):
    """A convolution of 3 x 3 with stride 1, of [n, h, w, c] with weights [3, 3, c, f] to [n, h, w, f], in fp32.

    `data` is read at (h + i - top, w + j - left) for the weights (i, j), and counts as zero outside.  `nests` are all
    blocks of the function; `replaced` are the positions among them of the convolution and of the block that wrote the
    zeros around its data, if any.  `position` is the weights' among the function's parameters.
    """

    nests: tuple[Nest, ...]
    replaced: tuple[int, ...]
    data: Any
    weights: Any
    result: Any
    position: int
    top: int
    left: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the result."""
        n, h, w, f = (int(extent) for extent in self.result.shape)
        return n, h, w, f

    @property
    def name(self) -> str:
        """The name of its block."""
        return str(self.nests[max(self.replaced)].block.name_hint)

    @property
    def index_type(self) -> str:
        """The type of its indices."""
        return str(self.nests[max(self.replaced)].block.iter_vars[0].var.ty.dtype)

    @property
    def channels(self) -> int:
        """Channels of the data."""
        return int(self.data.shape[3])


def find_convolution(module: tvm.IRModule) -> Convolution | None:
    """The convolution of a workload (function `main`), where it has exactly one and that is of this kind."""
    function = module["main"]
    nests = nests_of(function)
    if nests is None:
        return None
    found = [at for at, nest in enumerate(nests) if nest.block.init is not None]
    matched = [match for at in found if (match := _match(function, nests, at)) is not None]
    return matched[0] if len(matched) == 1 else None


class _Operands(NamedTuple):
    data: Any
    weights: Any


def _match(function: Any, nests: list[Nest], at: int) -> Convolution | None:
    block = nests[at].block
    operands = _operands(nests[at])
    if operands is None:
        return None
    data, weights, result = operands.data.source, operands.weights.source, block.body.buffer
    position = next((i for i in weight_positions(function) if function.params[i].same_as(weights)), None)
    if position is None or sum(len(loads_in(nest.block.body, weights)) for nest in nests) != 1:
        return None
    if any(nest.block.body.buffer.same_as(result) for nest in nests[:at] + nests[at + 1 :] if _stores(nest)):
        return None
    here = Convolution(tuple(nests), (at,), data, weights, result, position, 0, 0)
    return _without_padding(function, here, at) or here


def _stores(nest: Nest) -> bool:
    return isinstance(nest.block.body, tvm.tirx.BufferStore)


def _operands(nest: Nest) -> _Operands | None:
    """What the block multiplies, if it is such a convolution."""
    block = nest.block
    if not _stores(nest):
        return None
    kept, reduced = nest.variables(reducing=False), nest.variables(reducing=True)
    store = block.body
    whole = len(kept) == 4 and len(reduced) == 3 and _all_same(store.indices, kept)
    if not whole or constant_shape(store.buffer) != tuple(_extent(nest, variable) for variable in kept):
        return None
    if not isinstance(store.value, tvm.tirx.Add) or not _sums_from_zero(block, store):
        return None
    for total, product in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        is_total = isinstance(total, tvm.ir.TensorLoad) and total.source.same_as(store.buffer)
        if is_total and _all_same(total.indices, kept) and isinstance(product, tvm.tirx.Mul):
            for data, weights in ((product.a, product.b), (product.b, product.a)):
                if _fit(nest, data, weights, kept):
                    return _Operands(data, weights)
    return None


def _sums_from_zero(block: Any, store: Any) -> bool:
    init = block.init
    return (
        isinstance(init, tvm.tirx.BufferStore)
        and init.buffer.same_as(store.buffer)
        and _all_same(init.indices, list(store.indices))
        and isinstance(init.value, tvm.tirx.FloatImm)
        and float(init.value.value) == 0.0
        and str(store.buffer.dtype) == _TYPE
    )


def _fit(nest: Nest, data: Any, weights: Any, kept: list[Any]) -> bool:
    """Whether the data is read at (n, h + i, w + j, c) and the weights at (i, j, c, f), and both are whole."""
    n, h, w, f = kept
    for load in (data, weights):
        if not isinstance(load, tvm.ir.TensorLoad) or len(load.indices) != 4 or str(load.source.dtype) != _TYPE:
            return False
    i, j, c, last = weights.indices
    reduced = nest.variables(reducing=True)
    if not last.same_as(f) or not all(any(v.same_as(each) for each in reduced) for v in (i, j, c)):
        return False
    if i.same_as(j) or i.same_as(c) or j.same_as(c):
        return False
    inputs = _extent(nest, c)
    shape, filters = constant_shape(data.source), constant_shape(weights.source)
    if filters != (_KERNEL, _KERNEL, inputs, _extent(nest, f)) or _extent(nest, i) != 3 or _extent(nest, j) != 3:
        return False
    if shape != (_extent(nest, n), _extent(nest, h) + _KERNEL - 1, _extent(nest, w) + _KERNEL - 1, inputs):
        return False
    at = data.indices
    around = is_offset_of(at[1], (h, i)) == 0 and is_offset_of(at[2], (w, j)) == 0
    return bool(at[0].same_as(n) and at[3].same_as(c) and around)


def _extent(nest: Nest, variable: Any) -> int:
    return next(int(each.dom.extent) for each in nest.block.iter_vars if each.var.same_as(variable))


def _all_same(found: Any, wanted: list[Any]) -> bool:
    return len(found) == len(wanted) and all(a.same_as(b) for a, b in zip(found, wanted, strict=True))


def _without_padding(function: Any, convolution: Convolution, at: int) -> Convolution | None:
    """The convolution that reads what a block of padding reads, where its data is that block's alone."""
    padded, nests = convolution.data, convolution.nests
    writers = [i for i, nest in enumerate(nests) if _stores(nest) and nest.block.body.buffer.same_as(padded)]
    readers = [i for i, nest in enumerate(nests) if loads_in(nest.block.body, padded)]
    if len(writers) != 1 or readers != [at] or any(parameter.same_as(padded) for parameter in function.params):
        return None
    found = _padding(nests[writers[0]])
    if found is None:
        return None
    data, top, left = found
    if convolution.result.same_as(data):
        return None
    return convolution._replace(replaced=(writers[0], at), data=data, top=top, left=left)


def _padding(nest: Nest) -> tuple[Any, int, int] | None:
    """What a block writes with zeros around, rows above and columns to the left; None for any other block."""
    found = zero_padding(nest)
    if found is None or len(found.before) != 4 or found.before[0] or found.before[3]:
        return None
    shape = constant_shape(found.data)
    if shape is None or (nest.extents[0], nest.extents[3]) != (shape[0], shape[3]):
        return None
    return found.data, found.before[1], found.before[2]
