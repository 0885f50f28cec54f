"""Sums with few positions compute what onnxruntime computes, whatever is decided; other workloads are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
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


@compiled_examples(14, deadline=None, phases=PHASES)
@given(
    st.builds(
        Case,
        height=st.integers(1, 5),
        width=st.integers(1, 6),
        channels=st.sampled_from([1, 3, 16, 20, 33]),
        filters=st.sampled_from([8, 16, 21, 40, 64, 70]),
        images=st.integers(1, 2),
        kernel=st.sampled_from([(1, 1), (3, 3), (1, 3), (3, 1), (1, 8), (2, 5)]),
        stride=st.sampled_from([1, 2, (1, 2)]),
        dilation=st.sampled_from([1, 1, (1, 2), 2]),
        groups=st.sampled_from([1, 1, 1, 1, 2]),
        pads=st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (2, 4, 2, 4)]),
        after=st.sampled_from([(), ("bias", "relu"), ("bias",)]),
    ).filter(
        lambda case: (
            not case.channels % case.groups
            and not case.filters % case.groups
            and all(extent > 0 for extent in extents(case))
        )
    ),
    st.data(),
)
def test_convolutions_of_any_kind(here: Any, case: Case, data: st.DataObject) -> None:
    from kintune.compiler.kernels.reading import joined
    from kintune.compiler.programs.streamed_sum import StreamedSum

    program, module = StreamedSum(), workload(case)
    assert case.groups == 1 or joined(module) is None
    if joined(module) is None:
        assert program.variants(module, here) == ()
        return
    written = decided(program, module, VARIANT, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), in_onnxruntime(case)) < 1e-5


@compiled_examples(8, deadline=None, phases=PHASES)
@given(
    st.sampled_from([(1,), (3,), (1, 7), (2, 1, 5), (16,), (19,)]),
    st.sampled_from([8, 21, 48, 96]),
    st.sampled_from([1, 3, 64, 130]),
    st.booleans(),
    st.data(),
)
def test_products_of_few_rows(
    here: Any, shape: tuple[int, ...], columns: int, reduced: int, epilogue: bool, data: st.DataObject
) -> None:
    from kintune.compiler.programs.streamed_sum import StreamedSum

    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue)
    written = decided(StreamedSum(), module, VARIANT, lambda number: data.draw(st.integers(0, number - 1)))
    assert relative_error(run(written, here, written=True), run(module, here)) < 1e-5


def test_what_follows_may_lie_across(here: Any) -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.programs.streamed_sum import StreamedSum

    data, weight = te.placeholder((1, 1, 6, 20), name="data"), te.placeholder((1, 3, 20, 40), name="weight")
    found = topi.transpose(topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, 1, (0, 1, 0, 1), 1)), (0, 1, 3, 2))
    function = te.create_prim_func([data, weight, found]).with_attr("layout_free_buffers", [1])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    first = tuple(axis.values[0] for axis in StreamedSum().axes(module, VARIANT))
    written = StreamedSum().write(module, VARIANT, first)
    assert relative_error(run(written, here, written=True), run(module, here)) < 1e-5


def test_places_of_the_kernel_that_meet_only_zeros_are_not_read() -> None:
    from kintune.compiler.kernels.contraction import Reach
    from kintune.compiler.programs.streamed_loops import live_part

    one = live_part(Reach(size=1, results=1, kernel=3, stride=1, dilation=1, before=1))
    assert (one.first, one.reach.kernel, one.reach.before, one.is_inside) == (1, 1, 0, True)
    two = live_part(Reach(size=2, results=2, kernel=5, stride=1, dilation=1, before=2))
    assert (two.first, two.reach.kernel, two.reach.before, two.is_inside) == (1, 3, 1, False)
    halved = live_part(Reach(size=2, results=1, kernel=3, stride=2, dilation=1, before=1))
    assert (halved.first, halved.reach.kernel, halved.is_inside) == (1, 2, True)
    beyond = live_part(Reach(size=1, results=2, kernel=1, stride=1, dilation=1, before=3))
    assert beyond.reach.kernel == 1


def test_packed_weights_are_those_that_are_read(here: Any) -> None:
    from kintune.compiler.programs.streamed_sum import StreamedSum
    from kintune.compiler.space.packing import without_packing

    module = workload(Case(height=1, width=1, channels=64, filters=128, after=("bias", "relu")))
    program = StreamedSum()
    machine = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))
    written = program.write(module, "16x32", program.rule(module, "16x32", machine)[0])
    packed = without_packing(written)["main"].params[1]
    assert np.prod([int(extent) for extent in packed.shape]) == 64 * 128


def test_it_is_offered_where_positions_are_few() -> None:
    from kintune.compiler.programs.streamed_sum import MOST_POSITIONS, StreamedSum

    program = StreamedSum()
    few = workload(Case(height=1, width=4, channels=64, filters=64, kernel=(1, 3), pads=(0, 1, 0, 1)))
    assert program.variants(few, cpu_target()) == ("8x16",)
    assert program.variants(few, cpu_target("sapphirerapids")) == ("16x32",)
    assert program.variants(workload(Case(height=1, width=MOST_POSITIONS + 1, channels=64)), cpu_target()) == ()
    assert program.variants(product(3, columns=64, reduced=64), cpu_target()) == ("8x16",)
    assert program.variants(product(4, columns=65, reduced=64), cpu_target()) == ("8x16",)
    assert program.variants(product(4, columns=64, reduced=64), cpu_target()) == ()  # the tiled program has it
    assert program.variants(product(1, columns=16, reduced=8), cpu_target()) == ()
    for module in (
        workload(Case(height=2, width=2, channels=64, filters=64, weight=False)),
        workload(Case(height=2, width=2, channels=64, filters=64, before="relu")),
        workload(Case(height=2, width=2, channels=64, filters=64, groups=64)),
    ):
        assert program.variants(module, cpu_target()) == ()
        with pytest.raises(BuildError):
            program.write(module, "8x16", ((0,), (0,), (0,), (0,)))


def test_the_first_candidates_read_weights_once_and_share_large_ones() -> None:
    from kintune.compiler.programs.streamed_sum import StreamedSum

    program = StreamedSum()
    machine = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))
    large = workload(Case(height=1, width=4, channels=128, filters=128, kernel=(1, 3), pads=(0, 1, 0, 1)))
    first = program.rule(large, "16x32", machine)
    assert len(first) > 8
    for decisions in first:
        program.write(large, "16x32", decisions)
    text = program.write(large, "16x32", first[0]).script()
    assert "T.parallel(T.int64(1))" not in text
    assert "T.parallel" in text
    assert "group" not in text
    small = workload(Case(height=1, width=1, channels=32, filters=32))
    assert "T.parallel" not in program.write(small, "16x32", program.rule(small, "16x32", machine)[0]).script()


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
    from kintune.compiler.programs.streamed_sum import StreamedSum

    with pytest.raises(BuildError):
        StreamedSum().write(product(4, columns=64, reduced=64), variant, decisions)


def test_products_with_zeros_alone_count_as_saved() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.arithmetic import flops_of

    one = describe("conv", workload(Case(height=1, width=1, channels=64, filters=64)))
    assert flops_of(one.module, one.flops, "streamed.2:8x16") == pytest.approx(one.flops - 8 * 2 * 64 * 64)
    inside = describe("conv", workload(Case(height=3, width=3, channels=64, filters=64, pads=(0, 0, 0, 0))))
    assert flops_of(inside.module, inside.flops, "streamed.2:8x16") == inside.flops
