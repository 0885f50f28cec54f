"""What is special in sums in vectors; `test_sums` compares what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kintune.search.processor import Processor
from tests.support.convolutions import Case, workload
from tests.support.products import product
from tests.support.sums import MACHINE
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm

NONE = (0, 0, 0, 0)


def program() -> Any:
    from kintune.compiler.programs.vector_program import VectorSum

    return VectorSum()


FAR_APART = Case(1, 300, 8, kernel=(1, 3), dilation=(1, 64), pads=(0, 128, 0, 0), after=("bias",))
SPECTRUM = Case(1, 2000, 1, 24, kernel=(1, 400), stride=(1, 20), pads=(0, 0, 0, 0))


@pytest.mark.parametrize("case", [FAR_APART, SPECTRUM], ids=["far apart", "spectrum"])
def test_results_at_edges_that_lie_far_apart_are_computed_one_by_one(case: Case) -> None:
    module = workload(case)
    for decisions in program().rule(module, "8x16", Processor())[:3]:
        assert ("single" in program().write(module, "8x16", decisions).script()) == (case is FAR_APART)


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
    from kintune.compiler.programs.registry import flops_of

    one = describe("conv", workload(Case(1, 1, 64, 64)))
    assert flops_of(one.module, one.flops, "vectors.1:8x16") == pytest.approx(one.flops - 8 * 2 * 64 * 64)
    inside = describe("conv", workload(Case(3, 3, 64, 64, pads=NONE)))
    assert flops_of(inside.module, inside.flops, "vectors.1:8x16") == inside.flops


def test_rows_that_would_push_each_other_out_of_the_cache_take_longer() -> None:
    """Rows of data are a line more than 4096 bytes apart, or just that; the cache has 12 ways, of which 9 are used."""
    tilings = [program().tiling(rows, vectors, 1, 2) for rows, vectors in ((14, 2), (9, 3))]
    apart, close = (
        [program().cost(program().case(product(1, 128, columns=768, reduced=reduced), "16x32"), each, MACHINE) / reduced
         for each in tilings]
        for reduced in (1040, 1024)
    )  # fmt: skip
    assert close[0] > 1.4 * apart[0]
    assert close[1] == pytest.approx(apart[1], rel=0.05)


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (lambda: product(4, columns=64, reduced=64), True),
        (lambda: product(3, columns=65, reduced=64), True),
        (lambda: product(512, columns=1, reduced=2048), False),  # zeros, mostly
        (lambda: product(1, columns=16, reduced=8), False),
        (lambda: workload(SPECTRUM), True),
        (lambda: workload(Case(1, 200, 64, 64, kernel=(1, 3), dilation=(1, 128), pads=(0, 128, 0, 128))), False),
        (lambda: workload(Case(28, 28, 64, 1)), False),
    ],
)
def test_it_is_offered_for_sums_that_are_worth_it(make: Any, offered: bool) -> None:
    module = make()
    assert program().variants(module, cpu_target()) == (("8x16",) if offered else ())
    assert program().variants(module, cpu_target("sapphirerapids")) == (("16x32",) if offered else ())
