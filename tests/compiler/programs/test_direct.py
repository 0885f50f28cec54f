"""Direct convolutions compute what onnxruntime computes, whatever is decided; other workloads are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.compiler.programs.test_padding import product
from tests.support.convolutions import Case, decided, extents, in_onnxruntime, relative_error, run, workload
from tests.support.examples import compiled_examples
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long
VARIANT = "8x16"
MACHINE = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))


@compiled_examples(24, deadline=None, phases=PHASES)
@given(
    st.builds(
        Case,
        height=st.sampled_from([1, 1, 2, 5, 8, 9]),
        width=st.integers(3, 60),
        channels=st.sampled_from([1, 3, 8, 14, 33]),
        filters=st.sampled_from([4, 8, 18, 24, 51, 64]),
        images=st.integers(1, 2),
        kernel=st.sampled_from([(3, 3), (5, 5), (1, 3), (3, 1), (1, 5), (7, 2)]),
        stride=st.sampled_from([1, 1, 2, (1, 2), (3, 1)]),
        dilation=st.sampled_from([1, 1, (1, 2), 3, (1, 9), (1, 14)]),
        pads=st.sampled_from(
            [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (2, 4, 2, 4), (2, 2, 2, 2), (0, 14, 0, 14)]
        ),
        after=st.sampled_from([(), ("bias", "relu"), ("bias",)]),
    ).filter(lambda case: all(extent > 0 for extent in extents(case))),
    st.data(),
)
def test_convolutions_of_any_kind(here: Any, case: Case, data: st.DataObject) -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    program, module = DirectConvolution(), workload(case)
    try:
        program.axes(module, VARIANT)
    except BuildError as error:
        assert "no register tile" in str(error) or extents(case)[0] * extents(case)[1] * case.images <= 16  # noqa: PT017
        return
    written = decided(program, module, VARIANT, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), in_onnxruntime(case)) < 1e-5


def grouped(groups: int, depth: int, filters: int, **values: Any) -> Case:
    """A convolution with so many channels and filters of each group."""
    return Case(groups=groups, channels=groups * depth, filters=groups * filters, group_axis=True, **values)


@compiled_examples(12, deadline=None, phases=PHASES)
@given(
    st.builds(
        grouped,
        groups=st.sampled_from([2, 3, 8]),
        depth=st.sampled_from([1, 2, 8, 13]),
        filters=st.sampled_from([2, 5, 8, 24]),
        height=st.integers(7, 11),
        width=st.integers(6, 20),
        kernel=st.sampled_from([(3, 3), (1, 1), (1, 5)]),
        stride=st.sampled_from([1, 2]),
        pads=st.sampled_from([(0, 2, 0, 2), (1, 2, 1, 2)]),
        after=st.sampled_from([(), ("bias", "relu"), ("bias",)]),
    ),
    st.data(),
)
def test_convolutions_in_groups(here: Any, case: Case, data: st.DataObject) -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    program, module = DirectConvolution(), workload(case)
    written = decided(program, module, VARIANT, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), in_onnxruntime(case)) < 1e-5


@pytest.mark.parametrize("after", [("residual", "relu"), ("silu",), ("bias", "residual", "silu")])
def test_what_follows_is_computed_where_the_sums_are(here: Any, after: tuple[str, ...]) -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    program, module = DirectConvolution(), workload(Case(height=7, width=9, filters=40, stride=2, after=after))
    written = program.write(module, VARIANT, program.rule(module, VARIANT, MACHINE)[0])
    assert relative_error(run(written, here, written=True), run(module, here)) < 1e-5


def test_data_is_read_without_zeros_around_it() -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    program, module = DirectConvolution(), workload(Case(height=28, width=28, stride=2))
    assert "pad_temp" in module.script()
    candidates = program.rule(module, "16x32", MACHINE)
    assert len(candidates) > 8
    for decisions in candidates:
        assert "pad_temp" not in program.write(module, "16x32", decisions).script()


def test_results_that_lack_products_are_computed_one_by_one_where_they_are_many(here: Any) -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    case = Case(height=1, width=300, channels=8, kernel=(1, 3), dilation=(1, 64), pads=(0, 128, 0, 0), after=("bias",))
    program, module = DirectConvolution(), workload(case)
    for decisions in program.rule(module, VARIANT, MACHINE)[:6]:
        written = program.write(module, VARIANT, decisions)
        assert "single" in written.script()
        assert relative_error(run(written, here, written=True), in_onnxruntime(case)) < 1e-5
    far = Case(height=1, width=200, channels=64, filters=64, kernel=(1, 3), dilation=(1, 128), pads=(0, 256, 0, 0))
    assert program.variants(workload(far), here) == ()  # no result has all products


def test_images_of_one_row_keep_all_threads_busy() -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    case = Case(height=1, width=2000, channels=64, filters=51, kernel=(1, 3), dilation=(1, 64), pads=(0, 0, 0, 0))
    program, module = DirectConvolution(), workload(case)
    text = program.write(module, "16x32", program.rule(module, "16x32", MACHINE)[0]).script()
    assert "T.parallel(T.int64(1))" not in text
    assert "T.parallel" in text


def test_it_is_offered_for_convolutions_that_others_leave() -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    program = DirectConvolution()
    module = workload(Case(height=28, width=28, filters=24, after=("bias", "relu")))
    assert program.variants(module, cpu_target()) == ("8x16",)
    assert program.variants(module, cpu_target("sapphirerapids")) == ("16x32",)
    for other in (
        workload(Case(height=28, width=28, kernel=(1, 1), pads=(0, 0, 0, 0), channels=64, filters=64)),
        workload(Case(height=2, width=4, channels=64, filters=64)),
        workload(Case(height=28, width=28, groups=16)),
        workload(Case(height=28, width=28, groups=2)),
        workload(Case(height=28, width=28, weight=False)),
        workload(Case(height=28, width=28, before="relu")),
        workload(Case(height=28, width=28, dtype="float16")),
        workload(Case(height=28, width=28, channels=64, filters=1)),
        product(128, columns=64, reduced=64),
    ):
        assert program.variants(other, cpu_target()) == ()
    with pytest.raises(BuildError, match="no convolution"):
        program.write(product(128, columns=64, reduced=64), "8x16", ((0,), (0,), (0,)))


@pytest.mark.parametrize(
    ("decisions", "variant"),
    [
        (((0,), (0,)), "8x16"),
        (((999,), (0,), (0,)), "8x16"),
        (((0,), (0,), (0,)), "x"),
        (((0,), (0,), (0,)), "8x7"),
    ],
)
def test_decisions_of_another_program_are_refused(decisions: tuple[tuple[int, ...], ...], variant: str) -> None:
    from kintune.compiler.programs.direct import DirectConvolution

    with pytest.raises(BuildError):
        DirectConvolution().write(workload(Case(height=28, width=28)), variant, decisions)
