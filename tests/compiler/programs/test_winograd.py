"""Winograd's convolution computes what the direct one does, and is offered for nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.errors import BuildError
from tests.support.convolutions import Case, relative_error, run, workload
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

VARIANTS = ("4x16", "2x16")
ERRORS = {"2": 1e-5, "4": 1e-4}
"""The largest error over the largest value that each size of tiles may have."""

AFTER = (
    (),
    ("bias", "relu"),
    ("bias", "residual", "relu"),
    ("bias", "silu"),
    ("bias", "relu", "twice"),
)
MEAN = ("relu", "mean")


def programs() -> tuple[Any]:
    from kintune.compiler.programs.winograd import BlockedWinograd

    return (BlockedWinograd(),)


def agree(case: Case, target: Any, wanted: Iterable[tuple[Any, str]], draw: Any = None) -> None:
    """Compare the wanted programs and variants with the untuned program."""
    module = workload(case)
    expected = run(module, target)
    for program, variant in wanted:
        axes = program.axes(module, variant) or ()
        decisions = tuple(axis.values[draw(len(axis.values)) if draw else 0] for axis in axes)
        try:
            written = program.write(module, variant, decisions)
        except BuildError:
            assert axes  # parts that are not whole
            continue
        error = relative_error(run(written, target, written=True), expected)
        assert error <= ERRORS[variant[0]], (case, program.name, variant, decisions, error)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("size", [8, 7])
def test_computes_the_convolution_and_what_follows(after: tuple[str, ...], size: int, here: Any) -> None:
    case = Case(height=size, width=size + 1, after=after)
    agree(case, here, itertools.product(programs(), VARIANTS))


@pytest.mark.parametrize("after", [*AFTER, MEAN])
def test_it_is_offered_where_all_that_follows_is_computed_with_it(after: tuple[str, ...], here: Any) -> None:
    """A mean cannot be computed tile by tile."""
    (blocked,) = programs()
    offered = blocked.variants(workload(Case(after=after)), here)
    assert len(set(offered)) == len(offered) <= 2
    assert bool(offered) == ("mean" not in after)


def test_what_follows_is_computed_tile_by_tile(here: Any) -> None:
    module = workload(Case(height=7, width=9, after=("bias", "residual", "relu")))
    (blocked,) = programs()
    script = str(blocked.write(module, "4x16", ((1,), (1,), (1,), (1,))).script())
    assert script.count("T.sblock(") == 3  # with the root
    assert "pad_temp" not in script


FITTING = st.builds(
    Case,
    height=st.integers(1, 17),
    width=st.integers(1, 17),
    channels=st.sampled_from((16, 32)),
    filters=st.sampled_from((16, 48)),
    images=st.sampled_from((1, 1, 3)),
    pads=st.tuples(*(st.sampled_from((0, 1, 1, 2, 3)) for _ in range(4))),
    after=st.sampled_from(AFTER),
).filter(lambda case: case.height + case.pads[0] + case.pads[2] >= 3 and case.width + case.pads[1] + case.pads[3] >= 3)


@compiled_examples(30)
@given(FITTING, st.data())
def test_any_size_and_padding(here: Any, case: Case, data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(programs())), data.draw(st.sampled_from(VARIANTS))
    agree(case, here, [wanted], lambda count: data.draw(st.integers(0, count - 1)))


@compiled_examples(16)
@given(
    st.builds(
        Case,
        height=st.integers(3, 11),
        width=st.integers(3, 11),
        channels=st.sampled_from((3, 16, 24, 29, 40)),
        filters=st.sampled_from((5, 16, 17, 24, 44)),
        after=st.sampled_from(AFTER),
    ).filter(lambda case: case.channels % 16 or case.filters % 16),
    st.sampled_from((*VARIANTS, "4x8")),
    st.data(),
)
def test_vectors_need_not_be_whole(here: Any, case: Case, variant: str, data: st.DataObject) -> None:
    (blocked,) = programs()
    agree(case, here, [(blocked, variant)], lambda count: data.draw(st.integers(0, count - 1)))


def test_is_offered_where_zeros_cost_less_than_it_saves(here: Any) -> None:
    (blocked,) = programs()
    wide = Case(height=32, width=32, channels=96, filters=28)
    assert blocked.variants(workload(wide), here)
    for narrow in (Case(height=32, width=32, channels=3), Case(height=32, width=32, filters=1)):
        assert not blocked.variants(workload(narrow), here)


MISSES: tuple[dict[str, Any], ...] = (
    {"kernel": (1, 1)},
    {"kernel": (5, 5)},
    {"kernel": (3, 1)},
    {"kernel": (1, 3)},
    {"kernel": (2, 2)},
    {"stride": 2},
    {"stride": (1, 2)},
    {"dilation": 2},
    {"dilation": (2, 1)},
    {"groups": 2},
    {"groups": 16},
    {"dtype": "float16"},
    {"dtype": "float64"},
    {"weight": False},
)


@settings(max_examples=60)
@given(st.sampled_from(MISSES), st.sampled_from(AFTER), st.integers(8, 17), st.integers(0, 2))
def test_is_not_offered_for_what_looks_alike(
    here: Any, changes: dict[str, Any], after: tuple[str, ...], size: int, pad: int
) -> None:
    case = Case(**{"height": size, "width": size, "pads": (pad, pad, pad, 1), "after": after, **changes})
    module = workload(case)
    for program in programs():
        assert tuple(program.variants(module, here)) == ()
        with pytest.raises(BuildError):
            program.write(module, "4x16", ((0,),) * 4)


def test_is_not_offered_where_it_saves_nothing(here: Any) -> None:
    """One value takes a whole tile."""
    for program in programs():
        assert tuple(program.variants(workload(Case(height=1, width=1)), here)) == ()


def test_no_program_is_offered_for_a_gpu() -> None:
    import tvm

    from kintune.compiler.programs.registry import applicable

    module = workload(Case())
    assert list(applicable(module, tvm.target.Target("llvm")))
    assert list(applicable(module, tvm.target.Target("cuda"))) == []


@pytest.mark.parametrize("variant", ["", "3x16", "4x5", "4", "4x16x2"])
def test_other_variants_do_not_exist(variant: str) -> None:
    for program in programs():
        with pytest.raises(BuildError):
            program.write(workload(Case()), variant, ((0,),) * 4)


def test_other_decisions_do_not_exist(here: Any) -> None:
    (blocked,) = programs()
    with pytest.raises(BuildError, match="4 decisions"):
        blocked.write(workload(Case()), "4x16", ())


def test_a_weight_that_another_block_reads_stays(here: Any) -> None:
    """It would be gone."""
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 8, 8, 16), name="data")
    weight = te.placeholder((3, 3, 16, 16), name="weight")
    found = topi.add(topi.nn.conv2d_nhwc(data, weight, 1, 1, 1), topi.sum(weight))
    function = te.create_prim_func([data, weight, found]).with_attr("layout_free_buffers", [1])
    for program in programs():
        assert tuple(program.variants(tvm.IRModule({"main": function}), here)) == ()


def test_two_convolutions_are_left_alone(here: Any) -> None:
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 8, 8, 16), name="data")
    first, second = (te.placeholder((3, 3, 16, 16), name=name) for name in ("first", "second"))
    found = topi.nn.conv2d_nhwc(topi.nn.conv2d_nhwc(data, first, 1, 1, 1), second, 1, 1, 1)
    function = te.create_prim_func([data, first, second, found]).with_attr("layout_free_buffers", [1, 2])
    for program in programs():
        assert tuple(program.variants(tvm.IRModule({"main": function}), here)) == ()


def test_first_candidates_are_distinct_and_fit(here: Any) -> None:
    from kintune.core.candidate import fits
    from kintune.search.processor import Processor

    module = workload(Case(height=28, width=28, channels=128, filters=128))
    (blocked,) = programs()
    for variant in VARIANTS:
        axes = blocked.axes(module, variant)
        found = blocked.rule(module, variant, Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20)))
        assert 8 <= len(found) == len(set(found))
        assert all(fits(axes, decisions) for decisions in found)
        blocked.write(module, variant, found[0])


def test_vectors_have_lanes_that_the_compiler_knows() -> None:
    """LLVM computes vectors whose lanes are no power of two one by one."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    from kintune.compiler.programs.winograd import BlockedWinograd

    program, module = BlockedWinograd(), workload(Case(height=16, width=16, channels=32, filters=96))
    written = program.write(module, VARIANTS[0], ((1,), (3,), (1,), (1,)))
    lanes: set[int] = set()

    def note(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED:
            lanes.add(int(loop.extent))

    structural_walk(written["main"].body, [(tirx.For, note)])
    assert 16 in lanes
    assert all(each & (each - 1) == 0 for each in lanes)


@compiled_examples(16, deadline=None)
@given(
    st.builds(Case, height=st.integers(3, 14), width=st.integers(3, 14), after=st.sampled_from(((), ("bias",)))),
    st.sampled_from(VARIANTS),
    st.sampled_from((float("nan"), float("inf"), float("-inf"), 1e20)),
    st.integers(0, 13),
    st.integers(0, 13),
)
def test_an_extreme_value_spreads_over_the_tiles_that_read_it_alone(
    here: Any, case: Case, variant: str, value: float, row: int, column: int
) -> None:
    """A tile of m x m results reads (m + 2) x (m + 2) values; where the direct result is no number, it has none."""
    row, column, size = row % case.height, column % case.width, int(variant[0])
    (blocked,) = programs()
    module = workload(case)
    decisions = tuple(axis.values[0] for axis in blocked.axes(module, variant) or ())
    place = {(0, row, column, 3): value}
    expected = run(module, here, extremes=place)
    found = run(blocked.write(module, variant, decisions), here, written=True, extremes=place)
    reads = np.zeros(found.shape, bool)
    for top in range(0, found.shape[1], size):
        for left in range(0, found.shape[2], size):
            if top - 1 <= row <= top + size and left - 1 <= column <= left + size:
                reads[:, top : top + size, left : left + size] = True
    scale = np.abs(expected[~reads]).max(initial=16.0)  # of sums of 144 products
    assert (np.abs(found[~reads] - expected[~reads]) <= ERRORS[variant[0]] * scale).all()
    assert not np.isfinite(found[~np.isfinite(expected)]).any()
