"""A plan with open extents whose kernels are `toy_kernels.c`, for tests of the runtime without the compiler."""

from __future__ import annotations

import msgspec

from kintune.core.execution_plan import Copy, ExecutionPlan, KernelCall, OpenExtent, OpenExtents
from kintune.core.extents import Formula, Product, Quotient
from kintune.core.model import Tensor
from tests.support.toy_model import planned

__all__ = ["GREATEST", "TWICE", "ranged", "summing", "times"]

LEAST, STEP, GREATEST = 8, 4, 1000


def times(number: int) -> Formula:
    """So many times the extent in steps."""
    return Formula((Product(number, (Quotient((("n", 1),)),)),))


N, TWICE = times(STEP), times(2 * STEP)
BYTES = Formula((Product(64, (Quotient((("n", 4 * STEP),), 63, 64),)),))  # of the floats, at the next multiple of 64


def summing(greatest: int = GREATEST) -> ExecutionPlan:
    """out = x + y, by way of the arena, where x lies before the sum; z has twice as many elements."""
    shape, behind = (greatest,), BYTES.value({"n": greatest // STEP})
    return ExecutionPlan(
        tensors=(
            planned("input", 0, shape),
            planned("input", 1, shape),
            planned("input", 2, (2 * greatest,)),
            planned("arena", 0, shape),
            planned("arena", behind, shape),
            planned("output", 0, shape),
        ),
        operations=(Copy(0, 3), KernelCall("add", (3, 1, 4)), Copy(4, 5)),
        input_tensors=(0, 1, 2),
        output_tensors=(5,),
        inputs=(Tensor("x", shape, "float32"), Tensor("y", shape, "float32"), Tensor("z", (2 * greatest,), "float32")),
        outputs=(Tensor("sum", shape, "float32"),),
        arena_bytes=2 * behind,
        open=OpenExtents(
            (OpenExtent("n", 0, 0, LEAST, greatest, STEP),),
            {**dict.fromkeys((0, 1, 3, 4, 5), (N,)), 2: (TWICE,)},
            {4: BYTES},
            {},
        ),
    )


def ranged(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with the ranges of its inputs and outputs, which its file does not repeat."""

    def of(tensor: Tensor) -> Tensor:
        times = tensor.shape[0] // GREATEST
        step = STEP if tensor.name == "x" else 0
        return msgspec.structs.replace(tensor, ranges=((times * LEAST, times * GREATEST, step),))

    return msgspec.structs.replace(plan, inputs=tuple(map(of, plan.inputs)), outputs=tuple(map(of, plan.outputs)))
