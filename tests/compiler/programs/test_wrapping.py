"""Loops that wrap around a power of two are split, and what row programs write of them computes the right numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.networks import lower_operator

if TYPE_CHECKING:
    import tvm

pytestmark = pytest.mark.tvm

Shape = tuple[int, ...]


def tiled(shape: Shape, times: Shape, target: tvm.target.Target) -> Any:
    """What the row program writes to repeat a tensor along each axis."""
    import tvm
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    module = lower_operator(shape, lambda v: relax.op.tile(v, times), target).module
    (function,) = [each for _, each in module.functions_items() if isinstance(each, tvm.tirx.PrimFunc)]
    return write_rows(function)


@pytest.mark.parametrize(
    ("shape", "times", "extents"),
    [
        ((3, 4), (2, 3), [6, 3, 4]),
        ((3, 4, 5), (1, 3, 2), [3, 3, 4, 10]),
        ((3, 6), (1, 3), [3, 18]),
        ((3, 4), (2, 1), [6, 4]),
    ],
)
def test_a_loop_over_several_times_a_power_of_two_is_two_loops(
    shape: Shape, times: Shape, extents: list[int], cpu: tvm.target.Target
) -> None:
    import tvm_ffi
    from tvm import tirx

    found: list[int] = []
    walk = [(tirx.For, lambda each: found.append(int(each.extent)))]
    tvm_ffi.structural_walk(tiled(shape, times, cpu).body, walk, order=tvm_ffi.WalkOrder.PREORDER)
    assert found == extents


@pytest.mark.parametrize("times", [(7, 6, 4, 2), (1, 2, 3, 2), (2, 1, 4, 1)])
def test_rows_that_wrap_around_are_right(times: Shape) -> None:
    """The compiler is wrong with AVX-512 only, so this is compiled for the machine that it runs on."""
    import tvm

    from kintune.runtime.target import resolve_target

    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    x = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    wanted = np.tile(x, times)
    function = tiled(x.shape, times, target).with_attr("global_symbol", "main")
    found = tvm.runtime.tensor(np.zeros(wanted.shape, np.float32))
    tvm.compile(tvm.IRModule({"main": function}), target)["main"](tvm.runtime.tensor(x), found)
    np.testing.assert_array_equal(found.numpy(), wanted)
