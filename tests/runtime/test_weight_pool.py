"""Weights of several plans: stored once, and found by each plan where it expects them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.execution_plan import ExecutionPlan
from kintune.runtime.package import ALIGNMENT, Block, pack_weights
from kintune.runtime.weight_pool import WeightPool
from tests.support.toy_model import planned


def block(values: Sequence[int]) -> Block:
    array = np.array(values, np.uint8)
    return Block(array.shape, "uint8", array)


def plan_of(blocks: Sequence[Block]) -> ExecutionPlan:
    """A plan that reads each of these weights, and an input."""
    offsets, _ = pack_weights(blocks)
    tensors = [planned("weights", at, one.shape, "uint8") for at, one in zip(offsets, blocks, strict=True)]
    return ExecutionPlan((*tensors, planned("input", 0, (3,))), (), (), (), (), (), 0)


_WEIGHTS = st.lists(st.lists(st.integers(0, 2), max_size=200), max_size=5)


@given(st.lists(_WEIGHTS, min_size=1, max_size=4))
def test_every_plan_finds_its_weights_and_equal_ones_lie_once(plans: list[list[list[int]]]) -> None:
    pool = WeightPool()
    blocks = [[block(values) for values in weights] for weights in plans]
    moved = [pool.add(plan_of(each), each) for each in blocks]
    _, content = pack_weights(pool.blocks)
    for plan, each in zip(moved, blocks, strict=True):
        assert plan.tensors[-1] == planned("input", 0, (3,))
        for tensor, one in zip(plan.tensors, each, strict=False):
            assert tensor.offset % ALIGNMENT == 0
            assert tensor.shape == one.shape
            assert np.array_equal(content[tensor.offset : tensor.offset + tensor.nbytes], one.data)
    distinct = {tuple(values) for weights in plans for values in weights if values}
    assert len(pool.blocks) == len(distinct)


def test_weights_of_another_type_with_the_same_bytes_share_them() -> None:
    ones = np.ones(16, np.float32)
    same = Block((16,), "int32", ones.view(np.uint8))
    pool = WeightPool()
    pool.add(plan_of([block([1, 2])]), [block([1, 2])])
    for one in (Block((4, 4), "float32", ones.view(np.uint8)), same):
        pool.add(ExecutionPlan((planned("weights", 0, (16,)),), (), (), (), (), (), 0), [one])
    assert len(pool.blocks) == 2
