"""What is special in depthwise convolutions; `test_sums` compares what they compute."""

from __future__ import annotations

from typing import Any

import pytest

from kintune.search.processor import Processor
from tests.support.convolutions import Case, workload
from tests.support.sums import MACHINE
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm


def depthwise(channels: int = 16, **values: Any) -> Case:
    return Case(channels=channels, filters=channels, groups=channels, **values)


def test_data_is_read_without_zeros_around_it() -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(depthwise(64, height=14, width=14))
    assert "pad_temp" in module.script()
    for decisions in program.rule(module, "16x32", MACHINE):
        assert "pad_temp" not in program.write(module, "16x32", decisions).script()


def test_products_with_zeros_alone_count_as_saved() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.registry import flops_of

    one = describe("conv", workload(depthwise(64, height=1, width=8)))
    assert flops_of(one.module, one.flops, "depthwise.3:8x16") == pytest.approx(one.flops - 2 * 64 * (8 * 9 - 22))
    inside = describe("conv", workload(depthwise(64, height=3, width=8, pads=(0, 0, 0, 0))))
    assert flops_of(inside.module, inside.flops, "depthwise.3:8x16") == inside.flops


def test_strips_narrower_than_a_cache_line_are_not_taken_one_by_one() -> None:
    """Strip after strip, each line of the data would be fetched twice: 1.5 times as long on a CPU with 8 lanes."""
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    program, module = DepthwiseConvolution(), workload(depthwise(32, height=112, width=112))
    machine = Processor(8, 16, 2, (32 << 10, 512 << 10, 32 << 20))
    first = program.picked(program.case(module, "8x16"), program.rule(module, "8x16", machine)[0])
    assert not (first.tall and first.vectors == 1)


def test_few_results_are_left_to_others() -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    assert DepthwiseConvolution().variants(workload(depthwise(2, height=1, width=4)), cpu_target()) == ()
