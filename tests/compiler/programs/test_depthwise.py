"""Depthwise convolutions compute what onnxruntime computes, whatever is decided; other workloads are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.compiler.programs.test_kept_parameters import bits, computed, widened
from tests.support.convolutions import Case, decided, extents, in_onnxruntime, relative_error, run, workload
from tests.support.examples import compiled_examples
from tests.support.products import product
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long
VARIANT = "8x16"
MACHINE = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))


def depthwise(channels: int = 16, **values: Any) -> Case:
    return Case(channels=channels, filters=channels, groups=channels, **values)


@compiled_examples(20, deadline=None, phases=PHASES)
@given(
    st.builds(
        depthwise,
        channels=st.sampled_from([2, 8, 20, 24, 33, 72]),
        height=st.integers(1, 9),
        width=st.one_of(st.integers(1, 20), st.integers(40, 60)),
        images=st.integers(1, 2),
        kernel=st.sampled_from([(1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (1, 8), (7, 2)]),
        stride=st.sampled_from([1, 1, 2, (1, 2), (3, 1)]),
        dilation=st.sampled_from([1, 1, (1, 2), 3, (1, 14)]),
        pads=st.sampled_from(
            [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (2, 4, 2, 4), (2, 2, 2, 2), (0, 14, 0, 14)]
        ),
        after=st.sampled_from([(), ("bias", "relu"), ("bias",)]),
    ).filter(lambda case: all(extent > 0 for extent in extents(case))),
    st.data(),
)
def test_convolutions_of_any_kind(here: Any, case: Case, data: st.DataObject) -> None:
    from kintune.compiler.kernels.contraction import DEPTHWISE
    from kintune.compiler.kernels.reading import joined
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(case)
    assert joined(module) is None
    matched = joined(module, kinds=(DEPTHWISE,))
    assert matched is not None
    try:
        program.axes(module, VARIANT)
    except BuildError as error:
        assert "no register tile" in str(error)  # noqa: PT017 - too many tiles at the edges
        return
    written = decided(program, module, VARIANT, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), in_onnxruntime(case)) < 1e-5


@pytest.mark.parametrize("after", [("residual", "relu"), ("silu",), ("bias", "residual", "silu")])
def test_what_follows_is_computed_where_the_sums_are(here: Any, after: tuple[str, ...]) -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(depthwise(40, height=7, width=9, after=after))
    written = program.write(module, VARIANT, program.rule(module, VARIANT, MACHINE)[0])
    assert relative_error(run(written, here, written=True), run(module, here)) < 1e-5


@pytest.mark.parametrize("after", [(), ("bias", "residual", "relu")])
def test_data_and_results_may_be_in_bf16(here: Any, after: tuple[str, ...]) -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(depthwise(40, height=7, width=9, after=after))
    able, result = program.keepable(module), len(module["main"].params) - 1
    assert {0, result} <= able
    assert 1 not in able
    assert program.keepable(module, rounded=True) == frozenset()
    decisions = program.rule(module, VARIANT, MACHINE)[0]
    wide = computed(program.write(module, VARIANT, decisions), here, frozenset(), able)
    for kept in (able, frozenset({0}), frozenset({result})):
        narrow = computed(program.write(module, VARIANT, decisions, kept), here, kept, able)
        assert np.array_equal(narrow, widened(bits(wide)) if result in kept else wide)


def test_data_is_read_without_zeros_around_it() -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(depthwise(64, height=14, width=14))
    assert "pad_temp" in module.script()
    for decisions in program.rule(module, "16x32", MACHINE):
        assert "pad_temp" not in program.write(module, "16x32", decisions).script()


def test_it_is_offered_for_depthwise_convolutions_with_constant_weights() -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program = DepthwiseConvolution()
    module = workload(depthwise(32, after=("bias", "relu")))
    assert program.variants(module, cpu_target()) == ("8x16",)
    assert program.variants(module, cpu_target("sapphirerapids")) == ("16x32",)
    for other in (
        workload(Case(channels=64, filters=64)),
        workload(Case(channels=64, filters=64, groups=32)),
        workload(Case(channels=32, filters=64, groups=32)),
        workload(depthwise(32, weight=False)),
        workload(depthwise(32, before="relu")),
        workload(depthwise(32, dtype="float16")),
        workload(depthwise(2, height=1, width=4)),
        product(128, columns=64, reduced=64),
    ):
        assert program.variants(other, cpu_target()) == ()
    with pytest.raises(BuildError, match="no depthwise convolution"):
        program.write(workload(Case()), "8x16", ((0,), (0,), (0,), (0,)))


@pytest.mark.parametrize(
    ("decisions", "variant"),
    [
        (((0,), (0,), (0,)), "8x16"),
        (((999,), (0,), (0,), (0,)), "8x16"),
        (((0,), (0,), (0,), (0,)), "x"),
        (((0,), (0,), (0,), (0,)), "8x7"),
    ],
)
def test_decisions_of_another_program_are_refused(decisions: tuple[tuple[int, ...], ...], variant: str) -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    with pytest.raises(BuildError):
        DepthwiseConvolution().write(workload(depthwise(32)), variant, decisions)


def test_products_with_zeros_alone_count_as_saved() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.arithmetic import flops_of

    one = describe("conv", workload(depthwise(64, height=1, width=8)))
    assert flops_of(one.module, one.flops, "depthwise.2:8x16") == pytest.approx(one.flops - 2 * 64 * (8 * 9 - 22))
    inside = describe("conv", workload(depthwise(64, height=3, width=8, pads=(0, 0, 0, 0))))
    assert flops_of(inside.module, inside.flops, "depthwise.2:8x16") == inside.flops
