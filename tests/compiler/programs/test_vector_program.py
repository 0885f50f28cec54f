"""Sums in vectors compute what onnxruntime computes, whatever is decided; other workloads are left alone.

The cases are the ways through positions by shapes, edges and variants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.support.convolutions import Case, decided, extents, in_onnxruntime, relative_error, run, workload
from tests.support.examples import compiled_examples
from tests.support.products import product
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long
MACHINE = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))
VARIANTS = st.sampled_from(["8x16", "16x32", "4x32"])
NONE = (0, 0, 0, 0)


def program() -> Any:
    from kintune.compiler.programs.vector_program import VectorSum

    return VectorSum()


def agrees(module: Any, expected: Any, here: Any, variant: str, data: st.DataObject) -> None:
    """What is written with drawn decisions computes what is expected, if any tile fits."""
    try:
        program().axes(module, variant)
    except BuildError as error:
        assert "no register tile" in str(error)  # noqa: PT017
        return
    written = decided(program(), module, variant, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), expected) < 1e-5


KERNELS = st.sampled_from([(3, 3), (5, 5), (1, 3), (3, 1), (1, 8), (7, 2)])
PADS = st.sampled_from([NONE, (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (2, 4, 2, 4), (0, 14, 0, 14)])
AFTER = st.sampled_from([(), ("bias", "relu"), ("bias",)])
MANY = st.builds(
    Case,
    height=st.sampled_from([1, 1, 2, 5, 8, 9]),
    width=st.integers(3, 60),
    channels=st.sampled_from([1, 3, 8, 14, 33]),
    filters=st.sampled_from([4, 8, 18, 24, 51, 64]),
    images=st.integers(1, 2),
    kernel=KERNELS,
    stride=st.sampled_from([1, 1, 2, (1, 2), (3, 1)]),
    dilation=st.sampled_from([1, 1, (1, 2), 3, (1, 9), (1, 14)]),
    pads=PADS,
    after=AFTER,
)
FEW = st.builds(
    Case,
    height=st.integers(1, 4),
    width=st.integers(1, 5),
    channels=st.sampled_from([1, 3, 16, 20, 33]),
    filters=st.sampled_from([8, 16, 21, 40, 64, 70]),
    images=st.integers(1, 2),
    kernel=KERNELS,
    stride=st.sampled_from([1, 2, (1, 2)]),
    dilation=st.sampled_from([1, 1, (1, 2), 2]),
    pads=PADS,
    after=AFTER,
)


@compiled_examples(32, deadline=None, phases=PHASES)
@given(st.one_of(MANY, FEW).filter(lambda case: min(extents(case)) > 0), VARIANTS, st.data())
def test_convolutions(here: Any, case: Case, variant: str, data: st.DataObject) -> None:
    agrees(workload(case), in_onnxruntime(case), here, variant, data)


def grouped(groups: int, depth: int, filters: int, **values: Any) -> Case:
    """A convolution with so many channels and filters of each group."""
    return Case(groups=groups, channels=groups * depth, filters=groups * filters, group_axis=True, **values)


GROUPED = st.builds(
    grouped,
    groups=st.sampled_from([2, 3, 8]),
    depth=st.sampled_from([1, 2, 8, 13]),
    filters=st.sampled_from([2, 5, 8, 24]),
    height=st.integers(3, 11),
    width=st.integers(3, 20),
    kernel=st.sampled_from([(3, 3), (1, 1), (1, 5)]),
    stride=st.sampled_from([1, 2]),
    pads=st.sampled_from([(0, 2, 0, 2), (1, 2, 1, 2)]),
    after=AFTER,
)


@compiled_examples(12, deadline=None, phases=PHASES)
@given(GROUPED, VARIANTS, st.data())
def test_convolutions_in_groups(here: Any, case: Case, variant: str, data: st.DataObject) -> None:
    agrees(workload(case), in_onnxruntime(case), here, variant, data)


@compiled_examples(32, deadline=None, phases=PHASES)
@given(
    st.sampled_from([(1,), (3,), (9,), (13,), (1, 16), (3, 17), (2, 1, 11), (64,), (1, 128)]),
    st.sampled_from([8, 16, 24, 48, 64, 96, 6, 15, 21, 40, 47, 88, 150]),
    st.sampled_from([1, 3, 64, 130, 130, 3072, 3456]),
    st.sampled_from([False, True, "gelu", "residual", "turned"]),
    st.booleans(),
    VARIANTS,
    st.data(),
)
def test_products(
    here: Any,
    shape: tuple[int, ...],
    columns: int,
    reduced: int,
    epilogue: bool | str,
    transposed: bool,
    variant: str,
    data: st.DataObject,
) -> None:
    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue, transposed=transposed)
    agrees(module, run(module, here), here, variant, data)


FIRST = ((6, 2), (1,), (1,), (1,), (1,), (0,))
POINTWISE = [
    Case(14, 14, 24, 32, kernel=(1, 1), pads=NONE),
    Case(14, 14, 24, 20, kernel=(1, 1), pads=NONE, stride=2, images=2),
    Case(9, 9, 24, 32, kernel=(1, 1), pads=NONE, stride=2),
    Case(1, 17, 24, 32, kernel=(1, 1), pads=NONE, stride=(1, 2)),
]
AFTERWARDS = [
    Case(7, 9, filters=40, stride=2, after=after)
    for after in (("residual", "relu"), ("silu",), ("bias", "residual", "silu"))
]
FAR_APART = Case(1, 300, 8, kernel=(1, 3), dilation=(1, 64), pads=(0, 128, 0, 0), after=("bias",))
SPECTRUM = Case(1, 2000, 1, 24, kernel=(1, 400), stride=(1, 20), pads=(0, 0, 0, 0))


@pytest.mark.parametrize("case", [*POINTWISE, *AFTERWARDS, FAR_APART, SPECTRUM], ids=str)
def test_the_first_candidates_are_right(here: Any, case: Case) -> None:
    module = workload(case)
    for decisions in program().rule(module, "8x16", Processor())[:3]:
        written = program().write(module, "8x16", decisions)
        assert relative_error(run(written, here, written=True), run(module, here)) < 1e-5
    assert ("single" in written.script()) == (case is FAR_APART)


@pytest.mark.parametrize("variant", ["16x32", "4x32"])
@pytest.mark.parametrize(
    "module",
    [
        lambda: product(1, 128, columns=768, reduced=768),
        lambda: product(1, 128, columns=768, reduced=3072),
        lambda: workload(Case(28, 28, stride=2)),
        lambda: workload(Case(1, 2000, 64, 51, kernel=(1, 3), dilation=(1, 64), pads=NONE)),
        lambda: workload(Case(1, 4, 128, 128, kernel=(1, 3), pads=(0, 1, 0, 1))),
    ],
)
def test_the_first_candidates_keep_all_threads_busy(module: Any, variant: str) -> None:
    """All of them make a program, and none copies data with zeros around it."""
    workload = module()
    first = program().rule(workload, variant, MACHINE)
    assert len(first) > 8
    texts = [program().write(workload, variant, decisions).script() for decisions in first]
    assert not any("pad_temp" in text for text in texts)
    assert "T.parallel" in texts[0]
    assert "T.parallel(T.int64(1))" not in texts[0]


@pytest.mark.parametrize("variant", ["8x16", "16x32", "4x32"])
def test_sums_weights_and_a_value_of_the_data_have_registers_in_convolutions(variant: str) -> None:
    """AVX2 has no instruction that multiplies by a value from memory in all lanes."""
    tiles, *_ = program().axes(workload(Case(14, 14, 64, 64, stride=2)), variant)
    assert len(tiles.values) > 4
    assert all(rows * vectors + vectors < int(variant.partition("x")[2]) for rows, vectors in tiles.values)


def test_little_is_left_to_one_thread() -> None:
    small = workload(Case(1, 1, 32, 32))
    first = program().rule(small, "16x32", MACHINE)[0]
    assert "T.parallel" not in program().write(small, "16x32", first).script()


def test_places_of_the_kernel_that_meet_only_zeros_are_not_read() -> None:
    from kintune.compiler.kernels.contraction import Reach
    from kintune.compiler.kernels.tiled_rows import live_part
    from kintune.compiler.space.packing import without_packing

    one = live_part(Reach(size=1, results=1, kernel=3, before=1))
    assert (one.first, one.reach.kernel, one.reach.before) == (1, 1, 0)
    two = live_part(Reach(size=2, results=2, kernel=5, before=2))
    assert (two.first, two.reach.kernel, two.reach.before) == (1, 3, 1)
    halved = live_part(Reach(size=2, results=1, kernel=3, stride=2, before=1))
    assert (halved.first, halved.reach.kernel) == (1, 2)
    beyond = live_part(Reach(size=1, results=2, kernel=1, before=3))
    assert beyond.reach.kernel == 1
    module = workload(Case(1, 1, 64, 128, after=("bias", "relu")))
    written = program().write(module, "16x32", program().rule(module, "16x32", MACHINE)[0])
    packed = without_packing(written)["main"].params[1]
    assert np.prod([int(extent) for extent in packed.shape]) == 64 * 128


def test_products_with_zeros_alone_count_as_saved() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.arithmetic import flops_of

    one = describe("conv", workload(Case(1, 1, 64, 64)))
    assert flops_of(one.module, one.flops, "vectors.1:8x16") == pytest.approx(one.flops - 8 * 2 * 64 * 64)
    inside = describe("conv", workload(Case(3, 3, 64, 64, pads=NONE)))
    assert flops_of(inside.module, inside.flops, "vectors.1:8x16") == inside.flops


def test_rows_that_would_push_each_other_out_of_the_cache_are_not_the_first_choice() -> None:
    rows = {}
    for reduced in (1024, 1040):  # rows of data 4096 bytes apart, or a line more
        module = product(1, 128, columns=768, reduced=reduced)
        (((rows[reduced], _), *_), *_) = program().rule(module, "16x32", MACHINE)
    assert rows[1040] != rows[1024]


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (lambda: product(128, columns=64, reduced=256), True),
        (lambda: product(4, columns=64, reduced=64), True),
        (lambda: product(3, columns=65, reduced=64), True),
        (lambda: product(512, columns=1, reduced=2048), False),  # zeros, mostly
        (lambda: product(1, columns=16, reduced=8), False),
        (lambda: workload(Case(28, 28, filters=24, after=("bias", "relu"))), True),
        (lambda: workload(Case(1, 4, 64, 64, kernel=(1, 3), pads=(0, 1, 0, 1))), True),
        (lambda: workload(SPECTRUM), True),
        (lambda: workload(Case(1, 200, 64, 64, kernel=(1, 3), dilation=(1, 128), pads=(0, 128, 0, 128))), False),
        (lambda: workload(Case(28, 28, groups=16)), False),
        (lambda: workload(Case(28, 28, groups=2)), False),
        (lambda: workload(Case(28, 28, weight=False)), False),
        (lambda: workload(Case(28, 28, before="relu")), False),
        (lambda: workload(Case(28, 28, dtype="float16")), False),
        (lambda: workload(Case(28, 28, 64, 1)), False),
    ],
)
def test_it_is_offered_for_sums_that_are_worth_it(make: Any, offered: bool) -> None:
    module = make()
    assert program().variants(module, cpu_target()) == (("8x16",) if offered else ())
    assert program().variants(module, cpu_target("sapphirerapids")) == (("16x32",) if offered else ())


@pytest.mark.parametrize(
    ("decisions", "variant"),
    [(FIRST[:3], "8x16"), (((99, 2), *FIRST[1:]), "8x16"), (FIRST, "x"), (FIRST, "8x7")],
)
def test_decisions_of_another_program_are_refused(decisions: tuple[tuple[int, ...], ...], variant: str) -> None:
    with pytest.raises(BuildError):
        program().write(product(64, columns=64, reduced=64), variant, decisions)
    with pytest.raises(BuildError, match="no sums of products"):
        program().write(workload(Case(28, 28, before="relu")), "8x16", FIRST)
