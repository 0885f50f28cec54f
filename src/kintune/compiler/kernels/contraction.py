"""A weighted sum as a value: what it sums over, where its data and weights lie, and how they are stored.

Lowering writes what it knows of an operator on the block of its sums, as an annotation.
`kintune.compiler.kernels.reading` makes the value of a function, from that or from its loops.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
import tvm
import tvm_ffi

from kintune.compiler.kernels.blocks import Loops
from kintune.compiler.kernels.loops import replaced
from kintune.compiler.tir import nodes_in
from kintune.models.blockwise import ANNOTATION

__all__ = [
    "BATCHED",
    "BYTE_SUMS",
    "DENSE",
    "DEPTHWISE",
    "GROUPED",
    "OF_BLOCKWISE",
    "OF_BYTES",
    "OF_FLOATS",
    "SUMS",
    "Contraction",
    "Operator",
    "Reach",
    "described",
    "multiplies_rows",
    "narrow_sums",
    "undescribed",
]  # fmt: skip

DENSE, DEPTHWISE, GROUPED, BATCHED = "dense", "depthwise", "grouped", "batched"
"""Kinds of sums: each filter reads all channels, the one of its number, or those of its group; or weights differ along
the first axes of the data.
"""

OF_FLOATS, OF_BYTES, OF_BLOCKWISE = "floats", "bytes", "blockwise"
"""How operands are stored: data and weights of float32; uint8 and int8, with sums of int32; or data of float32 and
blockwise quantised weights.
"""

SUMS, BYTE_SUMS = "kintune.sums", "kintune.bytes"
"""The annotations of the block that sums products of floats, and of bytes."""

_NARROW = {OF_BYTES: BYTE_SUMS, OF_BLOCKWISE: ANNOTATION}


class Operator(msgspec.Struct, frozen=True):
    """What lowering knows of a product or a convolution.

    A product has data [..., k] and weights [k, f] or, `batched`, [..., k, f] with the data's first axes.  A convolution
    has data [n, h, w, c] and weights [i, j, c, f]; it has `strides` and `dilations` by rows and columns, and `point`
    stands around the data: `pads` rows above, columns to the left, rows below and columns to the right.  A point of
    None is read from a tensor of one element.  With `groups`, data and weights have an axis of them before the last, or
    each filter reads the channel of its number, by weights [i, j, 1, f].
    """

    convolves: bool = False
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    point: int | None = 0
    batched: bool = False
    groups: int | msgspec.UnsetType = msgspec.UNSET  # left out of the text, which is part of a workload's identity

    @property
    def text(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def described(block: Any) -> Operator | None:
    """What the annotation of a block says; None where it has none."""
    annotations = block.annotations or {}
    text = annotations.get(SUMS) or annotations.get(BYTE_SUMS)
    return None if text is None else msgspec.json.decode(str(text), type=Operator)


def undescribed(function: Any) -> Any:
    """The function without what lowering says of sums of floats: its identity is that of its loops."""

    def plain(block: Any) -> Any:
        kept = {name: value for name, value in (block.annotations or {}).items() if name != SUMS}
        if len(kept) == len(block.annotations or {}):
            return block
        return tvm.s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init, block.alloc_buffers,
            block.match_buffers, kept,
        )  # fmt: skip

    return function.with_body(tvm_ffi.structural_map(function.body, [(tvm.s_tir.SBlock, plain)]))


def narrow_sums(function: Any) -> frozenset[str]:
    """Those of `OF_BYTES` and `OF_BLOCKWISE` of which lowering says that the function has such sums."""
    said = {name for block in nodes_in(function.body, tvm.s_tir.SBlock) for name in block.annotations or {}}
    return frozenset(types for types, name in _NARROW.items() if name in said)


def multiplies_rows(function: Any) -> bool:
    """Whether lowering says that the function is a product of rows with a matrix of floats, or quantised blockwise."""
    found: list[bool] = []

    def visit(block: Any) -> None:
        text = (block.annotations or {}).get(SUMS)
        operator = None if text is None else msgspec.json.decode(str(text), type=Operator)
        found.append(operator is not None and not operator.convolves and not operator.batched)

    tvm_ffi.structural_walk(function.body, [(tvm.s_tir.SBlock, visit)])
    return any(found) or OF_BLOCKWISE in narrow_sums(function)


class Reach(NamedTuple):
    """What a sum reads along one axis of an image: position x reads x * stride + i * dilation - before for i < kernel.

    `size` is the extent of the image, `results` the number of positions.  What stands around the image is read outside
    of it: at `before` places in front of it and `after` places behind it.
    """

    size: int = 1
    results: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether position x reads x alone, and there is a position for each x of the image."""
        return self._replace(size=1, results=1) == Reach() and self.size == self.results

    @property
    def padded(self) -> int:
        """The extent of the image with what stands around it."""
        return self.before + self.size + self.after

    @property
    def read(self) -> int:
        """The places that are read, with those around the image."""
        return (self.results - 1) * self.stride + (self.kernel - 1) * self.dilation + 1


class Contraction(NamedTuple):
    """The sums over channels c and the kernel's places (i, j) of data times a weight for a filter f.

    `result` has the filters in its last axis.  The data is an array of [images, rows.size, columns.size, channels],
    around which `border` stands, an expression of its type.  A product of matrices is one image of one row, whose
    columns are all rows of the matrix.

    In a `DEPTHWISE` sum, filter f reads channel f alone; `channels` are then those of the data all the same.  In a
    `GROUPED` one, data and result have an axis of groups before that of channels or filters, of which a group has so
    many.

    `types` says how the operands are stored, and `blockwise` more of weights of that kind, which have `scales` and may
    have zero points, `zeros`.  `parameters` are the positions of the weights among those of the function, where their
    layout may be chosen.  A weight is the expression `weight_at` of the `variables` i, j, c, f and the group.

    Where other blocks compute the data row by row from the parameters, with sums of their own, as a norm does, they are
    the `prologue`: a function of the parameters and of the data, which it stores.

    `nests` are all blocks of the function; `replaced` are the positions among them of the sum, the last, and of the
    block that writes its data with the border, if any.
    """

    nests: tuple[Loops, ...]
    replaced: tuple[int, ...]
    kind: str
    types: str
    data: Any
    weights: Any
    result: Any
    parameters: tuple[int, ...]
    images: int
    rows: Reach
    columns: Reach
    weight_at: Any
    variables: tuple[Any, ...]
    border: Any = None
    blockwise: Any = None  # a `Blockwise`
    scales: Any = None
    zeros: Any = None
    prologue: Any = None  # a PrimFunc

    @property
    def position(self) -> int | None:
        """The position of the weights among the parameters; None where they are computed."""
        return next(iter(self.parameters), None)

    @property
    def stored_weights(self) -> list[Any]:
        """The weights; if they are blockwise quantised also their scales, and zero points if there are any."""
        return [each for each in (self.weights, self.scales, self.zeros) if each is not None]

    @property
    def channels(self) -> int:
        """The channels of the data, or columns of the matrix; of a group, if there are groups."""
        return int(self.data.shape[-1])

    @property
    def groups(self) -> int:
        """The number of groups in a sum that has an axis of them; 1 in others."""
        return int(self.result.shape[-2]) if self.kind == GROUPED else 1

    @property
    def filters(self) -> int:
        """The number of filters, which are columns of the matrix of weights."""
        return int(self.result.shape[-1])

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the axes of the result but the last."""
        return tuple(int(extent) for extent in self.result.shape)[:-1]

    @property
    def batches(self) -> tuple[int, ...]:
        """The extents of the axes along which weights differ."""
        return self.extents[:-1] if self.kind == BATCHED else ()

    @property
    def positions(self) -> int:
        """The number of places at which all filters are computed with the same weights."""
        return math.prod(self.extents[len(self.batches) :])

    @property
    def is_direct(self) -> bool:
        """Whether each position reads all channels of one place of the data, and nothing else."""
        return all(
            reach.kernel == 1 and not reach.before and (reach.results - 1) * reach.stride < reach.size
            for reach in (self.rows, self.columns)
        )

    @property
    def is_matrix(self) -> bool:
        """Whether all rows of the data are read in their order; they may be along other axes than the result's."""
        return self.rows == Reach() and self.columns.is_plain

    @property
    def flops(self) -> float:
        """The arithmetic of the sum."""
        summed = self.rows.kernel * self.columns.kernel * (1 if self.kind == DEPTHWISE else self.channels)
        return 2.0 * math.prod(self.extents) * self.filters * summed

    @property
    def name(self) -> str:
        """The name of its block."""
        return str(self.nests[self.replaced[-1]].block.name_hint)

    def weight(self, i: Any, j: Any, c: Any, f: Any, group: Any = None) -> Any:
        """The weight of a place of the kernel, a channel and a filter of a group; what the kind lacks is ignored."""
        pairs = zip(self.variables, (i, j, c, f, group), strict=True)
        return replaced(self.weight_at, {variable: value for variable, value in pairs if variable is not None})
