"""Winograd's convolution with products of bf16 computes what the direct one does, up to its rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.compiler.programs.test_kept_parameters import bits, computed, widened
from tests.compiler.programs.test_panel_sum import kinds
from tests.support.convolutions import Case, run, workload
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

VARIANT = "2x16"
ERROR = 1e-2
"""The norm of the difference over that of the result, at most."""

AFTER = ((), ("bias", "relu"), ("bias", "residual", "relu"), ("bias", "silu"), ("bias", "relu", "twice"))
PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long
ZEN4 = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}


def program() -> Any:
    from kintune.compiler.programs.winograd import NarrowWinograd

    return NarrowWinograd()


def target_of(target: dict[str, Any]) -> Any:
    import tvm

    return tvm.target.Target(target)


def written(module: Any, draw: Any = None, kept: frozenset[int] = frozenset()) -> Any:
    """The program with decisions that `draw` takes out of so many, or with the first ones of the rule."""
    if draw is None:
        decisions = program().rule(module, VARIANT, Processor(16, 32, 2))[0]
        return program().write(module, VARIANT, decisions, kept)
    while True:
        decisions = tuple(axis.values[draw(len(axis.values))] for axis in program().axes(module, VARIANT))
        try:
            return program().write(module, VARIANT, decisions, kept)
        except BuildError:
            continue  # parts that are not whole


def agree(case: Case, here: Any, draw: Any = None) -> None:
    """Compare with the untuned program where this CPU can run it; it is compiled for another one in any case."""
    import tvm

    module = workload(case)
    found = written(module, draw)
    if "dot" not in kinds():
        tvm.compile(found, target_of(ZEN4))
        return
    expected = run(module, here)
    error = np.linalg.norm(run(found, here, written=True) - expected) / np.linalg.norm(expected)
    assert error <= ERROR, (case, error)


@pytest.mark.parametrize("after", AFTER)
def test_computes_the_convolution_and_what_follows(after: tuple[str, ...], here: Any) -> None:
    agree(Case(height=7, width=10, channels=32, filters=64, after=after), here)


@compiled_examples(12, deadline=None, phases=PHASES)
@given(
    st.builds(
        Case,
        height=st.integers(1, 17),
        width=st.integers(1, 17),
        channels=st.sampled_from((1, 16, 29, 32, 40, 64)),
        filters=st.sampled_from((5, 16, 32, 48, 70)),
        images=st.sampled_from((1, 1, 3)),
        pads=st.tuples(*(st.sampled_from((0, 1, 1, 2, 3)) for _ in range(4))),
        after=st.sampled_from(AFTER),
    ).filter(
        lambda case: case.height + case.pads[0] + case.pads[2] >= 3 and case.width + case.pads[1] + case.pads[3] >= 3
    ),
    st.data(),
)
def test_any_size_and_padding(here: Any, case: Case, data: st.DataObject) -> None:
    agree(case, here, lambda count: data.draw(st.integers(0, count - 1)))


@pytest.mark.parametrize("after", [(), ("bias", "residual", "relu")])
def test_tensors_may_be_of_bf16(after: tuple[str, ...], here: Any) -> None:
    module = workload(Case(height=9, width=9, channels=32, filters=48, after=after))
    result = len(module["main"].params) - 1
    able = program().keepable(module)
    assert able == {0, *range(2, result + 1)}
    assert program().keepable(module, rounded=True) == frozenset()
    if "dot" not in kinds():
        return
    wide = computed(written(module), here, frozenset(), able)
    for kept in (able, frozenset({0}), frozenset({result})):
        narrow = computed(written(module, None, kept), here, kept, able)
        assert np.array_equal(narrow, widened(bits(wide)) if result in kept else wide), kept


def test_only_so_many_lines_are_asked_for_as_the_next_panel_has() -> None:
    """A panel of 64 columns and 64 channels has 128 lines, and a group of rows reads it in 32 steps."""
    module = workload(Case(height=16, width=16, channels=64, filters=128))
    for number, lines in ((1, 1), (4, 2), (16, 4)):
        decisions = ((6,), (4,), (number,), (1,))
        assert f'"kt_vdpbf16ps_6x4_ahead_{lines}_' in str(program().write(module, VARIANT, decisions)), number


@pytest.mark.parametrize(
    ("target", "case", "variants"),
    [
        (ZEN4, {}, (VARIANT,)),
        (ZEN4, {"channels": 3}, ()),  # the transforms cost more than is saved
        (ZEN4, {"stride": 2}, ()),
        (ZEN4, {"kernel": (5, 5), "pads": (2, 2, 2, 2)}, ()),
        (ZEN4, {"after": ("relu", "mean")}, ()),
        ({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2}, {}, ()),  # which has tiles of bf16
        ({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}, {}, ()),
        ({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}, {}, ()),
    ],
)
def test_where_it_is_offered(target: dict[str, Any], case: dict[str, Any], variants: tuple[str, ...]) -> None:
    sizes: dict[str, Any] = {"height": 14, "width": 14, "channels": 64, "filters": 64, **case}
    assert program().variants(workload(Case(**sizes)), target_of(target)) == variants


def test_is_among_the_sketches_in_bf16_alone() -> None:
    from kintune.compiler.programs.registry import instructions_of
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.search.sketch_program import precision_of, program_of

    module = workload(Case(height=14, width=14, channels=64, filters=64))
    name = f"winograd_narrow.{program().version}:{VARIANT}"
    narrow = generate_sketches("w", module, target_of(ZEN4), frozenset({"bf16"}))
    assert [precision_of(sketch) for sketch in narrow if program_of(sketch) == name] == ["bf16"]
    assert name not in map(program_of, generate_sketches("w", module, target_of(ZEN4)))
    assert "avx512bf16" in instructions_of(name)


def test_saves_arithmetic() -> None:
    from kintune.compiler.programs.winograd import BlockedWinograd

    module = workload(Case(height=14, width=14, channels=64, filters=64))
    assert program().saved_flops(module, VARIANT) == BlockedWinograd().saved_flops(module, VARIANT) > 0
