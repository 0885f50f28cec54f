"""Parameters in bf16: sums compute the same of data that is rounded already, and round what they store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from tests.compiler.programs.test_panel_sum import kinds
from tests.support.convolutions import Case, workload
from tests.support.examples import compiled_examples
from tests.support.products import product

pytestmark = pytest.mark.tvm

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long


def computed(module: Any, target: Any, narrow: frozenset[int], rounded: frozenset[int]) -> np.ndarray[Any, Any]:
    """What a function computes of random arrays, those `rounded` of values of bf16; it takes those in `narrow` so."""
    import tvm

    random = np.random.default_rng(0)
    arrays = []
    for position, parameter in enumerate(module["main"].params):
        array = random.standard_normal([int(extent) for extent in parameter.shape]).astype(np.float32)
        array = widened(bits(array)) if position in rounded else array
        arrays.append(tvm.runtime.tensor(bits(array)) if position in narrow else tvm.runtime.tensor(array))
    given_to = [
        array._create_view(array.shape, "bfloat16") if position in narrow else array
        for position, array in enumerate(arrays)
    ]
    tvm.compile(module, target)["main"](*given_to)
    found = np.asarray(arrays[-1].numpy())
    return widened(found) if found.dtype == np.uint16 else found


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values rounded to bf16, to the nearest and ties to even, as 16 bits."""
    wide = array.view(np.uint32).astype(np.uint64)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (array.astype(np.uint32) << 16).view(np.float32)


def agree(module: Any, target: Any, draw: Any = None) -> None:
    """Keep some of the parameters that may be kept, in each kind of inner kernel; others are as they were."""
    from kintune.compiler.programs.panel_sum import NarrowPanels

    program = NarrowPanels()
    able = program.keepable(module)
    result = len(module["main"].params) - 1
    has_columns = int(module["main"].params[result].shape[-1]) > 1  # of one column, the result may stay in fp32
    assert {0, result} <= able or (not has_columns and 0 in able)
    for kind in kinds():
        axes = program.axes(module, kind) or ()
        decisions = tuple(draw(st.sampled_from(axis.values)) if draw else axis.values[0] for axis in axes)
        kept = frozenset(draw(st.sets(st.sampled_from(sorted(able)), min_size=1)) if draw else able)
        wide = computed(program.write(module, kind, decisions), target, frozenset(), able)
        narrow = computed(program.write(module, kind, decisions, kept), target, kept, able)
        assert np.array_equal(narrow, widened(bits(wide)) if result in kept else wide), (kind, decisions, kept)


@compiled_examples(10, deadline=None, phases=PHASES)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=3).filter(lambda shape: np.prod(shape) <= 300),
    st.integers(1, 140),
    st.sampled_from([20, 32, 64, 100, 128]),
    st.booleans(),
    st.data(),
)
def test_products(here: Any, shape: list[int], columns: int, reduced: int, epilogue: bool, data: st.DataObject) -> None:
    agree(product(*shape, columns=columns, reduced=reduced, epilogue=epilogue), here, data.draw)


@compiled_examples(12, deadline=None, phases=PHASES)
@given(
    st.builds(
        Case,
        height=st.integers(13, 20),
        width=st.integers(13, 20),
        channels=st.sampled_from([3, 16, 20, 32, 64]),
        filters=st.sampled_from([5, 16, 32, 33, 70]),
        images=st.integers(1, 2),
        kernel=st.sampled_from([(1, 1), (3, 3), (1, 3), (7, 7)]),
        stride=st.sampled_from([1, 1, 2]),
        pads=st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1)]),
        after=st.sampled_from([(), ("bias", "relu"), ("bias", "residual", "relu"), ("bias", "silu"), ("twice",)]),
    ).filter(lambda case: case.kernel != (1, 1) or not any(case.pads)),
    st.data(),
)
def test_convolutions(here: Any, case: Case, data: st.DataObject) -> None:
    agree(workload(case), here, data.draw)


def test_whole_rows_are_read_where_they_are(here: Any) -> None:
    from kintune.compiler.programs.panel_sum import NarrowPanels

    program = NarrowPanels()
    for reduced, is_copied in ((64, False), (72, True)):
        written = program.write(product(197, columns=96, reduced=reduced), "amx", ((2,), (1,), (1,)), frozenset({0}))
        assert ('"kt_copy"' in str(written)) == is_copied
        assert '"kt_round"' not in str(written)
    for module in (product(197, columns=96, reduced=64), product(3, columns=96, reduced=64)):
        agree(module, here)


def test_what_is_stored_in_part_first_may_not_be_rounded() -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.programs.kept_parameters import is_reshape, readable, writable

    x = te.placeholder((1, 8, 8, 32), name="x")
    k = te.reduce_axis((0, 8), name="k")

    def made(*operands: Any) -> Any:
        return te.create_prim_func(list(operands))

    total = made(x, te.compute((8, 32), lambda i, j: te.sum(x[0, k, i, j], axis=k), "total"))
    largest = made(x, te.compute((8, 32), lambda i, j: te.max(x[0, k, i, j], axis=k), "largest"))
    assert readable(total, 0)
    assert not readable(total, 1)
    assert not writable(total, 1)
    assert readable(largest, 0)
    assert writable(largest, 1)
    assert not is_reshape(largest)
    assert is_reshape(made(x, topi.reshape(x, (64, 32))))
    assert not is_reshape(made(x, topi.transpose(x, (0, 2, 1, 3))))
    assert not is_reshape(made(x, topi.nn.relu(x)))
    indices = te.placeholder((4,), "int64", "indices")
    taken = made(indices, x, topi.take(x, indices, axis=1))
    assert not readable(taken, 0)
    assert isinstance(taken, tvm.tirx.PrimFunc)


def test_programs_without_bf16_keep_nothing() -> None:
    from kintune.compiler.programs.panel_sum import NarrowPanels
    from kintune.compiler.programs.registry import keepable, write_kept

    module = product(64, columns=64, reduced=64)
    assert keepable(f"narrow.{NarrowPanels.version}:amx", module) == {0, 2, 3}
    assert keepable("vectors.1:8x16", module) == frozenset()
    with pytest.raises(BuildError, match="no program"):
        write_kept("nothing.1:", module, (), ())
    with pytest.raises(BuildError, match="keeps nothing"):
        write_kept("vectors.1:8x16", module, (), {0})
