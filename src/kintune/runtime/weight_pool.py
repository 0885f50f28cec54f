"""The weights of several plans as one content of `weights.bin`, in which equal weights lie once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from kintune.core.execution_plan import ExecutionPlan, PlannedTensor
from kintune.runtime.package import ALIGNMENT, Block
from kintune_runtime.library import checksum

__all__ = ["WeightPool"]


class WeightPool:
    """Collects the weights of plans one after another; what has the same bytes is kept once.

    `blocks` are the distinct weights in order; `pack_weights` places them where the plans expect them.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._end = 0
        self._known: dict[tuple[int, int], list[tuple[int, Block]]] = {}  # by size and checksum: offsets and blocks

    def add(self, plan: ExecutionPlan, weights: Iterable[Block]) -> ExecutionPlan:
        """Take in the weights of a plan, in its order; returns the plan with their places among all weights."""
        moved: dict[int, int] = {}
        end = 0
        for block in weights:
            if block.data.nbytes:
                start = _aligned(end)
                moved[start] = self._keep(block)
                end = start + block.data.nbytes
        return msgspec.structs.replace(plan, tensors=tuple(_moved(tensor, moved) for tensor in plan.tensors))

    def _keep(self, block: Block) -> int:
        alike = self._known.setdefault((block.data.nbytes, checksum(block.data)), [])
        for offset, other in alike:
            if np.array_equal(other.data, block.data):
                return offset
        start = _aligned(self._end)
        self._end = start + block.data.nbytes
        self.blocks.append(block)
        alike.append((start, block))
        return start


def _aligned(position: int) -> int:
    return position + -position % ALIGNMENT


def _moved(tensor: PlannedTensor, moved: dict[int, int]) -> PlannedTensor:
    """A tensor with the place of its weight; one without elements needs none."""
    if tensor.place != "weights":
        return tensor
    return msgspec.structs.replace(tensor, offset=moved[tensor.offset] if tensor.nbytes else 0)
