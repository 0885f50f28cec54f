from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, Operation, Place, PlannedTensor
from kintune.core.model import Tensor
from kintune.errors import BuildError

pytestmark = pytest.mark.tvm

SIZE = 10  # floats of a tensor


def tensor(place: Place, offset: int, dtype: str = "float32", size: int = SIZE) -> PlannedTensor:
    return PlannedTensor(place, offset, dtype, (size,))


def plan_of(
    tensors: Sequence[PlannedTensor],
    operations: Sequence[Operation],
    arena_bytes: int = 0,
    bounds: tuple[int, int] | None = None,
) -> ExecutionPlan:
    """A plan whose first tensor is its input, and whose last one is its output."""
    return ExecutionPlan(
        tensors=tuple(tensors),
        operations=tuple(operations),
        input_tensors=(0,),
        output_tensors=(len(tensors) - 1,),
        inputs=(Tensor("x", tensors[0].shape, tensors[0].dtype, bounds=bounds),),
        outputs=(Tensor("y", tensors[-1].shape, tensors[-1].dtype),),
        arena_bytes=arena_bytes,
    )


def chain(length: int) -> tuple[ExecutionPlan, list[int]]:
    """A chain of kernels, each of which reads what the one before it has written, and the blocks of its tensors."""
    from kintune.compiler.graph.arena import Buffer, place_buffers

    arena = place_buffers([Buffer(4 * SIZE, at, at + 1) for at in range(length - 1)])
    middle = [tensor("arena", offset) for offset in arena.offsets]
    calls = [KernelCall(f"k{at}", (at, at + 1)) for at in range(length)]
    plan = plan_of([tensor("input", 0), *middle, tensor("output", 0)], calls, arena.nbytes)
    return plan, list(range(len(plan.tensors)))


def moved(plan: ExecutionPlan, number: int, offset: int) -> ExecutionPlan:
    tensors = list(plan.tensors)
    tensors[number] = msgspec.structs.replace(tensors[number], offset=offset)
    return msgspec.structs.replace(plan, tensors=tuple(tensors))


@given(st.integers(1, 12))
def test_a_chain_is_right(length: int) -> None:
    from kintune.compiler.graph.plan_check import check_plan

    check_plan(*chain(length))


@given(st.integers(3, 12), st.data())
def test_a_tensor_that_is_moved_onto_its_neighbour_is_found(length: int, data: st.DataObject) -> None:
    from kintune.compiler.graph.plan_check import check_plan

    plan, blocks = chain(length)
    number = data.draw(st.integers(1, length - 2))
    with pytest.raises(BuildError, match="by two tensors in operation"):
        check_plan(moved(plan, number, plan.tensors[number + 1].offset), blocks)


@pytest.mark.parametrize(("offset", "why"), [(4096, "ends at byte 4136"), (4, "begins at byte 4"), (-64, "begins at")])
def test_a_tensor_outside_of_the_arena_is_found(offset: int, why: str) -> None:
    from kintune.compiler.graph.plan_check import check_plan

    plan, blocks = chain(4)
    with pytest.raises(BuildError, match=why):
        check_plan(moved(plan, 2, offset), blocks)


def test_views_of_one_block_may_share_bytes() -> None:
    from kintune.compiler.graph.plan_check import check_plan

    plan, blocks = chain(3)
    blocks[2] = blocks[1]
    check_plan(moved(plan, 2, plan.tensors[1].offset), blocks)


def test_a_view_that_is_larger_than_the_output_is_found() -> None:
    from kintune.compiler.graph.plan_check import check_plan

    plan = plan_of([tensor("input", 0, size=SIZE), tensor("output", 0, size=99), tensor("output", 0)], [Copy(0, 2)])
    with pytest.raises(BuildError, match="tensor 1 has 396 bytes"):
        check_plan(plan, [0, 1, 1])


# ---- integers ----


def proofs(results: Mapping[str, tuple[int, int] | None], table: int) -> Any:
    """A prover: kernel "read" is proven where its first parameter is known to hold indices of a table of this size.

    Others store in their last parameter, which is their second, integers in the interval of `results`.
    """
    from kintune.compiler.bounds import Proof

    def prover(name: str, ranges: Mapping[int, tuple[int, int]]) -> Proof:
        if name == "read":
            least, most = ranges.get(0, (-(1 << 31), 1 << 31))
            return Proof(1, () if least >= 0 and most < table else ("table[element]: outside",), (1,))
        values = results[name]
        return Proof(1, (), (1,), {} if values is None else {1: values})

    return prover


def unproven(plan: ExecutionPlan, **results: tuple[int, int] | None) -> set[str]:
    from kintune.compiler.graph.plan_check import prove_plan

    found = prove_plan(plan, proofs(results, 8), lambda _tensor: (0, 3))
    return set(found.unproven)


INDEX = tensor("arena", 0, "int64")


def test_what_one_kernel_stores_is_known_where_another_reads_it() -> None:
    tensors = [tensor("input", 0, "int64"), INDEX, tensor("output", 0)]
    plan = plan_of(tensors, [KernelCall("clamp", (0, 1)), KernelCall("read", (1, 2))], 128)
    assert unproven(plan, clamp=(0, 7)) == set()
    assert unproven(plan, clamp=(-1, 7)) == {"read"}
    assert unproven(plan, clamp=None) == {"read"}


def test_bounds_of_an_input_and_values_of_a_weight_are_known() -> None:
    tensors = [tensor("input", 0, "int64"), tensor("weights", 0, "int64"), tensor("output", 0)]
    assert unproven(plan_of(tensors, [KernelCall("read", (0, 2))], bounds=(0, 7))) == set()
    assert unproven(plan_of(tensors, [KernelCall("read", (0, 2))], bounds=(-8, 7))) == {"read"}
    assert unproven(plan_of(tensors, [KernelCall("read", (0, 2))])) == {"read"}
    assert unproven(plan_of(tensors, [KernelCall("read", (1, 2))])) == set()


def test_memory_that_is_written_anew_is_no_longer_known() -> None:
    floats = tensor("arena", 0)
    tensors = [tensor("input", 0, "int64"), INDEX, floats, tensor("output", 0)]
    calls = [KernelCall("clamp", (0, 1)), KernelCall("other", (0, 2)), KernelCall("read", (1, 3))]
    assert unproven(plan_of(tensors, calls, 128), clamp=(0, 7), other=None) == {"read"}


def test_parts_that_were_written_one_by_one_are_known_together() -> None:
    parts = [tensor("arena", 0, "int64", 8), tensor("arena", 64, "int64", 8)]
    tensors = [tensor("input", 0, "int64"), *parts, tensor("arena", 0, "int64", 16), tensor("output", 0)]
    calls = [KernelCall("one", (0, 1)), KernelCall("other", (0, 2)), KernelCall("read", (3, 4))]
    assert unproven(plan_of(tensors, calls, 128), one=(0, 7), other=(2, 3)) == set()
    assert unproven(plan_of(tensors, calls, 128), one=(0, 7), other=(2, 9)) == {"read"}
    assert unproven(plan_of(tensors, calls[1:], 128), other=(0, 7)) == {"read"}


def branching(otherwise: int, end: int) -> ExecutionPlan:
    """Operations: 0 stores, 1 branches to `otherwise`, 2 stores, 3 jumps to `end`, 4 stores, 5 reads."""
    tensors = [tensor("input", 0, "int64"), INDEX, tensor("output", 0)]
    operations: list[Operation] = [
        KernelCall("first", (0, 1)),
        Branch(0, otherwise),
        KernelCall("then", (0, 1)),
        Jump(end),
        KernelCall("other", (0, 1)),
        KernelCall("read", (1, 2)),
    ]
    return plan_of(tensors, operations, 128)


@given(*[st.sampled_from([(0, 7), (0, 9)])] * 3)
def test_after_a_branch_either_way_counts(
    first: tuple[int, int], then: tuple[int, int], other: tuple[int, int]
) -> None:
    found = unproven(branching(4, 5), first=first, then=then, other=other)
    assert (found == set()) == (then == other == (0, 7))
    left_out = unproven(branching(5, 5), first=first, then=then, other=other)
    assert (left_out == set()) == (first == then == (0, 7))
