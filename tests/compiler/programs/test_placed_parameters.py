"""Functions that take larger tensors in place of parts compute the same, and leave the rest alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

ROWS = (3, 5)


def function(channels: int) -> Any:
    """Twice a tensor, less one."""
    from tvm import te

    x = te.placeholder((*ROWS, channels), "float32", "x")
    return te.create_prim_func([x, te.compute(x.shape, lambda *i: x(*i) * 2.0 - 1.0, "y")])


def computed(made: Any, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """What is in the arrays after a call of the function with them."""
    import tvm

    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), "llvm")["main"](*tensors)
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape).astype(np.float32)


@compiled_examples(10, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(1, 40), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_function_reads_and_writes_parts(channels: int, before: int, ahead: int, behind: int) -> None:
    from kintune.compiler.programs.placed_parameters import Place, place, placeable

    plain = function(channels)
    assert placeable(plain, 0)
    assert placeable(plain, 1)
    source, target = Place(before + channels, before), Place(ahead + channels + behind, ahead)
    x, y = drawn(*ROWS, source.extent), drawn(*ROWS, target.extent)
    wanted = y.copy()
    wanted[..., ahead : ahead + channels] = x[..., before:] * 2 - 1
    _, found = computed(place(plain, {0: source, 1: target}), x, y)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@compiled_examples(10, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(1, 40), st.integers(0, 20), st.integers(0, 20))
def test_a_part_is_copied(channels: int, before: int, ahead: int) -> None:
    from kintune.compiler.programs.placed_parameters import Place, copying

    source, target = Place(before + channels, before), Place(ahead + channels + 1, ahead)
    x, y = drawn(*ROWS, source.extent), drawn(*ROWS, target.extent)
    wanted = y.copy()
    wanted[..., ahead : ahead + channels] = x[..., before:]
    _, found = computed(copying((*ROWS, channels), "float32", source, target), x, y)
    np.testing.assert_array_equal(found, wanted)


def test_what_counts_through_several_axes_cannot_be_a_part() -> None:
    from tvm import te, tirx

    from kintune.compiler.kernels.loops import as_root, buffer, index, loop
    from kintune.compiler.programs.placed_parameters import placeable

    x, y = (buffer(name, (4, 8), "float32", "global") for name in "xy")
    body = loop("i", 32, lambda i: tirx.BufferStore(y, tirx.BufferLoad(x, [index(0), i]), [index(0), i]))
    assert not placeable(tirx.PrimFunc([x, y], as_root(body)), 0)

    a, b = (te.placeholder((4, 8), "float32", name) for name in "ab")
    joined = te.compute((4, 16), lambda i, j: tirx.if_then_else(j < 8, a(i, j), b(i, j - 8)), "joined")
    both = te.create_prim_func([a, b, joined])
    assert [placeable(both, position) for position in range(3)] == [False, False, True]


def test_an_address_that_is_given_away_is_no_part() -> None:
    from tvm import tirx

    from kintune.compiler.kernels.loops import as_root, buffer, index
    from kintune.compiler.programs.placed_parameters import placeable

    x, y = (buffer(name, (4, 8), "float32", "global") for name in "xy")
    zero = [index(0), index(0)]
    call = tirx.call_extern("int32", "copy", *(tirx.address_of(tirx.BufferLoad(each, zero)) for each in (x, y)))
    made = tirx.PrimFunc([x, y], as_root(tirx.Evaluate(call)))
    assert not placeable(made, 0)
    assert not placeable(made, 1)
