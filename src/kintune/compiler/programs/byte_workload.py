"""Recognises a workload that sums products of bytes, and what it reads, sums and writes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tvm
from tvm.s_tir import Schedule, ScheduleError

from kintune.compiler.kernels.instructions import WORD_BYTES
from kintune.compiler.kernels.microkernel import Segments
from kintune.compiler.programs.blocks import Nest, constant_shape, loads_in, nests_of
from kintune.compiler.programs.byte_pattern import ByteProduct, byte_product_of
from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.space.weights import weight_positions
from kintune.errors import BuildError

__all__ = ["ByteWorkload", "find_bytes", "joined_bytes", "require_bytes"]

_BORDERS = "pad_temp"
_BYTES, _WEIGHTS, _SUMS = "uint8", "int8", "int32"


class ByteWorkload(NamedTuple):
    """Sums of products of `data` and `weights` in `result`; `position` is the weights' among the parameters, None where
    they are computed.

    `nests` are all blocks of the function; `replaced` the positions among them of the sums and of what writes the
    borders of the data.  Channels are filled up to a multiple of `unit`.  `around` is the tensor of one element that
    has the zero point around the data, where that is computed.
    """

    product: ByteProduct
    nests: tuple[Nest, ...]
    replaced: tuple[int, ...]
    data: Any
    weights: Any
    result: Any
    position: int | None
    unit: int = WORD_BYTES
    around: Any = None

    @property
    def name(self) -> str:
        """The name of the block of the sums."""
        return str(self.nests[self.replaced[-1]].block.name_hint)

    @property
    def lead(self) -> tuple[int, ...]:
        """The extents of the result but for the filters."""
        return tuple(int(extent) for extent in self.result.shape[:-1])

    @property
    def batches(self) -> tuple[int, ...]:
        """The extents of the axes along which weights differ."""
        return self.lead[:-1] if self.product.batched else ()

    @property
    def rows(self) -> int:
        """The rows of the result that have the same weights, one for each place."""
        return math.prod(self.lead[len(self.batches) :])

    @property
    def filters(self) -> int:
        """The filters, or columns of the result."""
        return int(self.result.shape[-1])

    @property
    def channels(self) -> int:
        """The channels of the data, or columns."""
        return int(self.data.shape[-1])

    @property
    def depth(self) -> int:
        """The channels with those that fill them up."""
        return -(-self.channels // self.unit) * self.unit

    @property
    def taps(self) -> tuple[int, int]:
        """The rows and columns of the weights."""
        shape = [int(extent) for extent in self.weights.shape]
        return (shape[0], shape[1]) if self.product.convolves else (1, 1)

    @property
    def steps(self) -> int:
        """The steps of a sum."""
        return math.prod(self.taps) * self.depth // WORD_BYTES

    @property
    def image(self) -> tuple[int, int, int]:
        """The extents of the data with its borders: images, rows and columns; a product has one column a row."""
        if not self.product.convolves:
            return 1, math.prod(self.lead), 1
        n, height, width, _ = (int(extent) for extent in self.data.shape)
        top, left, bottom, right = self.product.pads
        return n, height + top + bottom, width + left + right

    @property
    def segment(self) -> int:
        """The bytes of a sum that lie one after another in the data as it is read, with borders and filled up."""
        columns = self.taps[1]
        return columns * self.depth if columns == 1 or self.product.dilations[1] == 1 else self.depth

    @property
    def segments(self) -> Segments:
        """Where such segments lie."""
        rows, columns = self.taps
        tall, wide = self.product.dilations
        far = self.image[2] * self.depth * tall
        if columns == 1 or wide == 1:
            return Segments(rows, far=far)
        return Segments(rows * columns, columns, wide * self.depth, far)

    @property
    def border(self) -> Any:
        """The byte that stands around the data."""
        return tvm.tirx.const(self.product.point, _BYTES) if self.around is None else self.around[0]

    @property
    def brought(self) -> list[Any]:
        """The tensors that are read when data is copied."""
        return [self.data] if self.around is None else [self.data, self.around]

    @property
    def is_copied(self) -> bool:
        """Whether the data is copied: for its borders, or to make whole steps of its channels."""
        return any(self.product.pads) or self.depth != self.channels

    def panels(self, columns: int) -> int:
        """How many panels of so many columns the filters fill."""
        return -(-self.filters // columns)


def find_bytes(module: tvm.IRModule) -> ByteWorkload | None:
    """The sums of products of bytes of a workload (function `main`), where it has exactly one block of them."""
    function = module["main"]
    nests = nests_of(function)
    if nests is None:
        return None
    found = [at for at, nest in enumerate(nests) if byte_product_of(nest.block) is not None]
    if len(found) != 1:
        return None
    at = found[0]
    block = nests[at].block
    product, store = byte_product_of(block), block.body
    if product is None or not isinstance(store, tvm.tirx.BufferStore) or str(store.buffer.dtype) != _SUMS:
        return None
    sources = {str(load.source.dtype): load.source for load in loads_in(block.body)}
    data, weights = sources.get(_BYTES), sources.get(_WEIGHTS)
    position = next((i for i in weight_positions(function) if function.params[i].same_as(weights)), None)
    if data is None or not any(parameter.same_as(weights) for parameter in function.params):
        return None
    if sum(len(loads_in(nest.block.body, weights)) for nest in nests) != 1:
        return None
    replaced: tuple[int, ...] = (at,)
    around = None
    if any(product.pads):
        writers = [i for i, nest in enumerate(nests) if nest.block.body.buffer.same_as(data)]
        if len(writers) != 1 or str(nests[writers[0]].block.name_hint) != _BORDERS:
            return None
        read = [load.source for load in loads_in(nests[writers[0]].block.body)]
        if len(read) != (2 if product.point is None else 1):
            return None
        data, replaced = read[0], (writers[0], at)
        around = read[1] if product.point is None else None
    if not any(parameter.same_as(data) for parameter in function.params) or constant_shape(data) is None:
        return None
    return ByteWorkload(product, tuple(nests), replaced, data, weights, store.buffer, position, around=around)


def joined_bytes(module: tvm.IRModule) -> tuple[tvm.IRModule, ByteWorkload, Epilogue | None] | None:
    """The workload with all that follows its sums inlined into one block, the sums, and that block.

    The block is None where the sums are the result.  Returns None for a workload without such sums, or where one
    block cannot hold what follows.
    """
    schedule = Schedule(module, debug_mask=0, error_render_level="none")
    try:
        for block in schedule.get_child_blocks(schedule.get_sblock("root", func_name="main")):
            if _is_beside(schedule.get(block)) and schedule.get_consumers(block):
                schedule.compute_inline(block)
    except ScheduleError:
        return None
    found = find_bytes(schedule.mod)
    if found is None:
        return None
    if any(parameter.same_as(found.result) for parameter in schedule.mod["main"].params):
        return (schedule.mod, found, None) if len(found.nests) == len(found.replaced) else None
    follows = joined(schedule.mod, found.name)
    if follows is None:
        return None
    changed, epilogue = follows
    found = find_bytes(changed)
    if found is None or len(found.nests) != len(found.replaced) + 1:
        return None
    return changed, found, epilogue


def require_bytes(module: tvm.IRModule) -> tuple[tvm.IRModule, ByteWorkload, Epilogue | None]:
    """What `joined_bytes` finds.

    Raises:
        BuildError: the workload sums no products of bytes.
    """
    found = joined_bytes(module)
    if found is None:
        raise BuildError("there are no products of bytes")
    return found


def _is_beside(block: Any) -> bool:
    """Whether a block is neither the sums nor the borders of their data."""
    return byte_product_of(block) is None and not str(block.name_hint).startswith(_BORDERS)
