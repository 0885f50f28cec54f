"""Convolutions of images of one column are computed as those of one row, and give what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph
from tests.support.networks import lowered_as_onnxruntime_computes, results_of

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

HEIGHT, CHANNELS = 23, 8


class Drawn(NamedTuple):
    """A convolution along columns: the kernel's rows and columns, and its attributes."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    groups: int
    pads: tuple[int, int, int, int]


def _check(
    drawings: list[Drawn], columns: int, cpu: tvm.target.Target, run_program: RunsProgram, folder: Path
) -> list[tuple[int, ...]]:
    """Compare with onnxruntime; returns the shapes of what is convolved."""
    g = Graph()
    shape = (2, CHANNELS, HEIGHT, columns)
    results = []
    for each in drawings:
        weight = g.weight(CHANNELS, CHANNELS // each.groups, *each.kernel)
        convolved = g(
            "Conv", "x", weight, g.weight(CHANNELS), kernel_shape=list(each.kernel), strides=[each.stride, 1],
            dilations=[each.dilation, 1], group=each.groups, pads=list(each.pads),
        )  # fmt: skip
        results.append(g("Relu", convolved))
    path = g.save(folder / "model.onnx", shape, results)
    lowered = lowered_as_onnxruntime_computes(path, shape, cpu, run_program, drawings)
    return results_of(lowered, "conv2d")


def test_a_column_is_computed_as_a_row(cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    drawn = Drawn((5, 1), 1, 1, 1, (0, 0, 0, 0))
    assert _check([drawn], 1, cpu, run_program, tmp_path) == [(2, 1, HEIGHT - 4, CHANNELS)]


def test_two_columns_stay_columns(cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    drawn = Drawn((5, 1), 1, 1, 1, (0, 0, 0, 0))
    assert _check([drawn], 2, cpu, run_program, tmp_path) == [(2, HEIGHT - 4, 2, CHANNELS)]


def test_an_image_of_one_pixel_takes_no_kernel_more(cpu: tvm.target.Target, tmp_path: Path) -> None:
    """As in blocks that squeeze and excite."""
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    g = Graph()
    pooled = g("Relu", g.conv(g("GlobalAveragePool", "x"), CHANNELS, 4, 1))
    result = g("Mul", "x", g("Sigmoid", g.conv(pooled, 4, CHANNELS, 1)))
    path = g.save(tmp_path / "model.onnx", (1, CHANNELS, 6, 6), [result])
    lowered = lower(load(parse_ref(str(path))).module, cpu)
    kernels = [workload.signature for workload in lowered.workloads]
    assert kernels == ["mean", "reshape", "conv2d-relu", "conv2d-tir-sigmoid", "reshape-multiply"]


def test_padding_beside_a_column_makes_it_wider(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    drawn = Drawn((3, 1), 1, 1, 1, (1, 1, 1, 0))
    assert _check([drawn], 1, cpu, run_program, tmp_path) == [(2, HEIGHT, 2, CHANNELS)]


drawings = st.builds(
    Drawn,
    st.sampled_from(((1, 1), (3, 1), (5, 1), (3, 3))),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from((1, 2, CHANNELS)),
    st.tuples(st.integers(0, 2), st.just(1), st.integers(0, 2), st.just(1)),
).map(lambda drawn: drawn if drawn.kernel[1] > 1 else drawn._replace(pads=(drawn.pads[0], 0, drawn.pads[2], 0)))


@settings(max_examples=2, derandomize=True, phases=[Phase.generate])
@given(drawn=st.lists(drawings, min_size=6, max_size=6))
def test_whatever_is_convolved_along_a_column_is_right(
    drawn: list[Drawn], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _check(drawn, 1, cpu, run_program, tmp_path_factory.mktemp("column"))
