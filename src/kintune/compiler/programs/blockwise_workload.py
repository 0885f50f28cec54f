"""Recognises a workload that sums products with blockwise quantised weights, and what it reads, sums and writes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, Schedule, ScheduleError

from kintune.compiler.programs.blocks import Nest, constant_shape, loads_in, nests_of
from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.space.weights import weight_positions
from kintune.models.blockwise import ANNOTATION, Blockwise, parse_blockwise

__all__ = ["BlockwiseWorkload", "joined_blockwise", "sums_blockwise"]


class BlockwiseWorkload(NamedTuple):
    """Sums of products of `data` with weights, in `result`; see `Blockwise` for `integers`, `scales` and `zeros`.

    `zeros` is None where there are none.  `name` is that of the block of the sums; `others` counts the blocks beside
    it; `positions` are those of the weights among the parameters.
    """

    product: Blockwise
    name: str
    others: int
    data: Any
    integers: Any
    scales: Any
    zeros: Any
    result: Any
    positions: tuple[int, ...]

    @property
    def weights(self) -> list[Any]:
        """Integers, scales, and zero points if there are any."""
        return [each for each in (self.integers, self.scales, self.zeros) if each is not None]

    @property
    def lead(self) -> tuple[int, ...]:
        """The extents of the result but for the columns."""
        return tuple(int(extent) for extent in self.result.shape[:-1])

    @property
    def rows(self) -> int:
        """The rows of the result."""
        return math.prod(self.lead)

    @property
    def columns(self) -> int:
        """The columns of the result."""
        return int(self.result.shape[-1])


def sums_blockwise(function: Any) -> bool:
    """Whether a function has a block that sums products with blockwise quantised weights."""
    found: list[bool] = []
    tvm_ffi.structural_walk(function.body, [(SBlock, lambda block: found.append(_product_of(block) is not None))])
    return any(found)


def joined_blockwise(module: tvm.IRModule) -> tuple[tvm.IRModule, BlockwiseWorkload, Epilogue | None] | None:
    """The workload with all that follows its sums inlined into one block, the sums, and that block.

    The block is None where the sums are the result.  Returns None for a workload without such sums, or where one
    block cannot hold what follows.
    """
    if not sums_blockwise(module["main"]):
        return None
    schedule = Schedule(module, debug_mask=0, error_render_level="none")
    try:
        for block in schedule.get_child_blocks(schedule.get_sblock("root", func_name="main")):
            if _product_of(schedule.get(block)) is None and schedule.get_consumers(block):
                schedule.compute_inline(block)
    except ScheduleError:
        return None
    found = _found(schedule.mod)
    if found is None:
        return None
    if any(parameter.same_as(found.result) for parameter in schedule.mod["main"].params):
        return (schedule.mod, found, None) if not found.others else None
    follows = joined(schedule.mod, found.name)
    if follows is None:
        return None
    changed, epilogue = follows
    found = _found(changed)
    return None if found is None or found.others != 1 else (changed, found, epilogue)


def _product_of(block: Any) -> Blockwise | None:
    text = (block.annotations or {}).get(ANNOTATION)
    return None if text is None else parse_blockwise(str(text))


def _found(module: tvm.IRModule) -> BlockwiseWorkload | None:
    """The sums of a workload (function `main`), where it has exactly one block of them."""
    function = module["main"]
    nests = nests_of(function)
    if nests is None:
        return None
    marked = [nest for nest in nests if _product_of(nest.block) is not None]
    return _read(function, marked[0], len(nests) - 1) if len(marked) == 1 else None


def _read(function: Any, nest: Nest, others: int) -> BlockwiseWorkload | None:
    product, store = _product_of(nest.block), nest.block.body
    factors = _factors(store)
    if product is None or factors is None:
        return None
    data, integers, zeros, scales = ([load.source for load in loads_in(part)] for part in factors)
    if len(data) != 1 or len(integers) != 1 or len(scales) != 1 or len(zeros) != bool(product.zeros):
        return None
    weights = [*integers, *scales, *zeros]
    free = weight_positions(function)
    positions = [at for at in free if any(function.params[at].same_as(each) for each in weights)]
    is_parameter = any(parameter.same_as(data[0]) for parameter in function.params)
    if len(positions) != len(weights) or not is_parameter or constant_shape(data[0]) is None:
        return None
    return BlockwiseWorkload(
        product,
        str(nest.block.name_hint),
        others,
        data[0],
        integers[0],
        scales[0],
        zeros[0] if zeros else None,
        store.buffer,
        tuple(sorted(positions)),
    )


def _factors(store: Any) -> tuple[Any, Any, Any, Any] | None:
    """What is multiplied and subtracted in `sum + data * ((integer - zero) * scale)`."""
    if not isinstance(store, tvm.tirx.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return None
    product = store.value.b
    if not isinstance(product, tvm.tirx.Mul) or not isinstance(product.b, tvm.tirx.Mul):
        return None
    centred, scale = product.b.a, product.b.b
    if not isinstance(centred, tvm.tirx.Sub):
        return None
    return product.a, centred.a, centred.b, scale
