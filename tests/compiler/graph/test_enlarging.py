"""Convolutions of 1x1 are computed before their maps are enlarged, and compute the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph
from tests.support.networks import lowered_as_onnxruntime_computes, results_of

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.lower import Lowered
    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

CHANNELS, SIDE = 16, 6
PIXELS = SIDE * SIDE
LARGE = 2 * SIDE

_MODES = (
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
)


def _enlarge(g: Graph, x: str, rows: float, columns: float, mode: int = 2) -> str:
    scales = g.constant([1, 1, rows, columns])
    return g("Resize", x, g.constant([]), scales, **_MODES[mode])


def _lower(
    g: Graph, results: list[str], cpu: tvm.target.Target, run_program: RunsProgram, folder: Path, said: object = ""
) -> Lowered:
    shape = (1, CHANNELS, SIDE, SIDE)
    return lowered_as_onnxruntime_computes(g.save(folder / "model.onnx", shape, results), shape, cpu, run_program, said)


def _pixels(lowered: Lowered) -> list[int]:
    """Of how many pixels each convolution is, the fewest first."""
    return sorted(math.prod(shape[1:3]) for shape in results_of(lowered, "conv2d"))


@pytest.mark.parametrize("mode", range(len(_MODES)))
@pytest.mark.parametrize("times", [(2, 2), (1, 3), (2.5, 1.5)], ids=str)
def test_a_map_is_convolved_before_it_is_enlarged(
    mode: int, times: tuple[float, float], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    large = g.conv(_enlarge(g, "x", *times, mode=mode), CHANNELS, 8, 1)
    lowered = _lower(g, [g("Relu", g("Add", large, g.weight(1, 8, 1, 1)))], cpu, run_program, tmp_path)
    assert _pixels(lowered) == [PIXELS]


def test_maps_of_several_sizes_are_convolved_each_in_its_own(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    """As in the head of SegFormer; the convolutions that are read at the full size are one."""
    g = Graph()
    maps = [g("Relu", g.conv("x", CHANNELS, 32, 3, strides=[stride] * 2)) for stride in (1, 2, 3)]
    enlarged = [_enlarge(g, each, factor, factor) for each, factor in zip(maps[1:], (2, 3), strict=True)]
    whole = g("Concat", maps[0], *enlarged, "x", axis=1)
    lowered = _lower(g, [g("Relu", g.conv(whole, 3 * 32 + CHANNELS, 24, 1))], cpu, run_program, tmp_path)
    assert _pixels(lowered) == sorted([PIXELS, PIXELS // 4, PIXELS // 9] * 2)


def test_two_convolutions_read_what_is_concatenated(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    """As in the neck of YOLO."""
    g = Graph()
    whole = g("Concat", _enlarge(g, "x", 2, 2, mode=0), g.conv(_enlarge(g, "x", 2, 2), CHANNELS, CHANNELS), axis=1)
    results = [g("Relu", g.conv(whole, 2 * CHANNELS, 8, 1)) for _ in range(2)]
    lowered = _lower(g, results, cpu, run_program, tmp_path)
    assert _pixels(lowered) == [PIXELS] * 2 + [4 * PIXELS] * 3


@pytest.mark.parametrize("why", ["3x3", "strides", "groups", "padding", "read elsewhere", "a result", "few channels"])
def test_what_cannot_be_exchanged_stays(
    why: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    kernel = 3 if why == "3x3" else 1
    given = {"strides": {"strides": [2, 2]}, "groups": {"group": 2}, "padding": {"pads": [1] * 4}}.get(why, {})
    large = _enlarge(g, "x", 2, 2)
    filters = 200 if why == "few channels" else 8
    results = [g("Relu", g.conv(large, CHANNELS, filters, kernel, **given))]
    results += {"read elsewhere": [g("Relu", large)], "a result": [large]}.get(why, [])
    lowered = _lower(g, results, cpu, run_program, tmp_path)
    assert math.prod(results_of(lowered, "resize")[0]) == LARGE * LARGE * CHANNELS
    assert len(results_of(lowered, "conv2d")) == 1


class Drawn(NamedTuple):
    """What is concatenated: factors of rows and columns of each part, and its mode; and what reads it."""

    parts: tuple[tuple[float, float, int], ...]
    kernel: int
    filters: tuple[int, ...]
    elsewhere: bool


factors = st.sampled_from((1.0, 2.0, 3.0, 0.5))
drawings = st.builds(
    Drawn,
    st.lists(st.tuples(factors, factors, st.integers(0, len(_MODES) - 1)), min_size=1, max_size=3).map(tuple),
    st.sampled_from((1, 1, 1, 3)),
    st.lists(st.sampled_from((1, 4, 24)), min_size=1, max_size=2).map(tuple),
    st.booleans(),
)


def _draw(g: Graph, drawn: Drawn) -> list[str]:
    """The input is brought to the size of each part, and then to the size in which all are concatenated."""
    parts = []
    for down, across, mode in drawn.parts:
        part = "x"
        for rows, columns in ((int(LARGE / down), int(LARGE / across)), (LARGE, LARGE)):
            sizes = g.constant([1, CHANNELS, rows, columns], np.int64)
            part = g("Resize", part, g.constant([]), g.constant([]), sizes, **_MODES[mode])
        parts.append(part)
    whole = g("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    results = [g.conv(whole, CHANNELS * len(parts), filters, drawn.kernel) for filters in drawn.filters]
    return [*results, *([g("Relu", whole)] if drawn.elsewhere else [])]


@settings(max_examples=3, derandomize=True, phases=[Phase.generate])
@given(drawn=st.lists(drawings, min_size=6, max_size=6))
def test_whatever_is_enlarged_and_convolved_is_right(
    drawn: list[Drawn], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    results = [result for each in drawn for result in _draw(g, each)]
    _lower(g, results, cpu, run_program, tmp_path_factory.mktemp("enlarging"), drawn)
