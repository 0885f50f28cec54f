"""Averages are taken before a convolution of 1x1, and the results stay the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph
from tests.support.networks import lowered_as_onnxruntime_computes, results_of

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

CHANNELS, SIDE = 8, 8
PIXELS = SIDE * SIDE
SHAPE = (1, CHANNELS, SIDE, SIDE)
HALVED = {"kernel_shape": [2, 2], "strides": [2, 2]}


def _pixels(
    g: Graph, results: list[str], cpu: tvm.target.Target, run_program: RunsProgram, folder: Path, said: object = ""
) -> list[int]:
    """Compare with onnxruntime; returns of how many pixels each convolution is."""
    path = g.save(folder / "model.onnx", SHAPE, results)
    lowered = lowered_as_onnxruntime_computes(path, SHAPE, cpu, run_program, said)
    return [math.prod(shape) // shape[-1] for shape in results_of(lowered, "conv2d")]


def test_a_transition_of_a_densenet_averages_first(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    convolved = g.conv(g("Relu", "x"), CHANNELS, 4, 1)
    result = g("Relu", g("AveragePool", convolved, **HALVED))
    assert _pixels(g, [result], cpu, run_program, tmp_path) == [PIXELS // 4]


def test_an_average_of_the_whole_map_comes_first(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    result = g("Relu", g("GlobalAveragePool", g.conv("x", CHANNELS, 32, 1)))
    assert _pixels(g, [result], cpu, run_program, tmp_path) == [1]


@pytest.mark.parametrize(("pool", "averages"), [("AveragePool", PIXELS // 4), ("GlobalAveragePool", 1)])
@pytest.mark.parametrize("bias", ["of the convolution", "first", "one for all"])
def test_a_bias_is_added_to_the_averages(
    pool: str, averages: int, bias: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    given = [g.weight(4)] if bias == "of the convolution" else []
    convolved = g("Conv", g("Relu", "x"), g.weight(4, CHANNELS, 1, 1), *given)
    if not given:
        operands = [g.weight(1, 4, 1, 1), convolved] if bias == "first" else [convolved, g.weight(1)]
        convolved = g("Add", *operands)
    pooled = g(pool, convolved, **(HALVED if pool == "AveragePool" else {}))
    assert _pixels(g, [g("Relu", pooled)], cpu, run_program, tmp_path) == [averages]


@pytest.mark.parametrize("why", ["padding", "padding counts", "read elsewhere", "one a row", "more channels"])
def test_a_bias_that_is_not_averaged_stays(
    why: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    convolved = g.conv("x", CHANNELS, 1 if why == "more channels" else 4, 1)
    total = g("Add", convolved, g.weight(1, 1, SIDE, 1) if why == "one a row" else g.weight(1, 4, 1, 1))
    given: dict[str, Any] = HALVED
    if "padding" in why:
        given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": int("counts" in why)}
    results = [g("AveragePool", total, **given)] + ([g("Neg", total)] if why == "read elsewhere" else [])
    assert _pixels(g, results, cpu, run_program, tmp_path) == [PIXELS]


@pytest.mark.parametrize("why", ["activation", "3x3", "read elsewhere", "as many pixels", "maximum"])
def test_what_cannot_be_exchanged_stays(
    why: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    convolved = g.conv("x", CHANNELS, 4, 3 if why == "3x3" else 1)
    pooled = g("Relu", convolved) if why == "activation" else convolved
    given: dict[str, Any] = HALVED
    if why == "as many pixels":
        given = {"kernel_shape": [3, 3], "pads": [1] * 4}
    results = [g("MaxPool" if why == "maximum" else "AveragePool", pooled, **given)]
    results += [g("Neg", convolved)] if why == "read elsewhere" else []
    assert _pixels(g, results, cpu, run_program, tmp_path) == [PIXELS]


class Drawn(NamedTuple):
    """A pool behind a convolution: its window, strides, padding, what it counts, and how the convolution is written."""

    window: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    counts_padding: int
    rounds_up: int
    bias: bool
    filters: int


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
drawings = st.builds(
    Drawn, pairs, pairs, st.tuples(*[st.integers(0, 1)] * 4), st.integers(0, 1), st.integers(0, 1), st.booleans(),
    st.sampled_from((1, 4, 24)),
).filter(lambda drawn: max(drawn.pads) < min(drawn.window))  # fmt: skip


@settings(max_examples=3, derandomize=True, phases=[Phase.explicit, Phase.generate])
@example(drawn=[Drawn((2, 4), (4, 3), (0, 0, 1, 1), 1, 1, False, 24)])
@given(drawn=st.lists(drawings, min_size=6, max_size=6))
def test_whatever_is_averaged_is_right(
    drawn: list[Drawn], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    results = []
    for each in drawn:
        weight = g.weight(each.filters, CHANNELS, 1, 1)
        bias = [g.weight(each.filters)] if each.bias else []
        results.append(g(
            "AveragePool", g("Conv", "x", weight, *bias), kernel_shape=list(each.window), strides=list(each.strides),
            pads=list(each.pads), count_include_pad=each.counts_padding, ceil_mode=each.rounds_up,
        ))  # fmt: skip
    _pixels(g, results, cpu, run_program, tmp_path_factory.mktemp("averaging"), drawn)
