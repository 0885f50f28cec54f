"""Convolutions in narrow groups get an axis of groups, keep their epilogues, and compute what they did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples
from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.lower import Lowered
    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm


def lowered(path: Path, target: tvm.target.Target) -> Lowered:
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    return lower(load(parse_ref(str(path))).module, target)


def block(path: Path, groups: int, depth: int, width: int, size: tuple[int, int] = (9, 8), **attributes: Any) -> Path:
    """A grouped convolution with bias, ReLU and a second reader, between two that are not grouped."""
    graph = Graph()
    channels, filters = groups * depth, groups * width
    x = graph("Relu", graph.conv("x", 3, channels, 1))
    y = graph("Conv", x, graph.weight(filters, depth, 3, 3), graph.weight(filters), group=groups, **attributes)
    y = graph("Relu", y)
    mean = graph("Sigmoid", graph("GlobalAveragePool", y))
    z = graph.conv(graph("Mul", y, mean), filters, 8, 1)
    return graph.save(path, (2, 3, *size), [z])


def operators(found: Lowered) -> list[str]:
    return [each.signature for each in found.workloads if each.operator in ("group_conv2d", "depthwise")]


def rank_of_weights(found: Lowered) -> int:
    (core,) = (each for each in found.workloads if each.operator in ("group_conv2d", "depthwise"))
    return max(len(parameter.shape) for parameter in core.module["main"].params)


@pytest.mark.parametrize(("groups", "depth", "width"), [(4, 16, 16), (3, 8, 24), (8, 1, 2), (5, 4, 1)])
def test_narrow_groups_are_an_axis_and_what_follows_is_fused(
    groups: int, depth: int, width: int, cpu: tvm.target.Target, tmp_path: Path
) -> None:
    found = lowered(block(tmp_path / "m.onnx", groups, depth, width, pads=[1, 1, 1, 1]), cpu)
    assert operators(found) == ["group-conv2d-add-relu"]
    assert rank_of_weights(found) == 5


@pytest.mark.parametrize(("groups", "depth", "width"), [(16, 1, 1), (2, 16, 64)])
def test_others_are_left_alone(groups: int, depth: int, width: int, cpu: tvm.target.Target, tmp_path: Path) -> None:
    found = lowered(block(tmp_path / "m.onnx", groups, depth, width, pads=[1, 1, 1, 1]), cpu)
    assert rank_of_weights(found) == 4


@compiled_examples(
    6, derandomize=True, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    groups=st.sampled_from((2, 3, 4)), depth=st.sampled_from((1, 3, 16)), width=st.sampled_from((2, 8, 16)),
    strides=st.sampled_from(([1, 1], [2, 2], [1, 2])), dilations=st.sampled_from(([1, 1], [2, 1])),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)  # fmt: skip
def test_any_groups_compute_what_onnxruntime_does(
    groups: int, depth: int, width: int, strides: list[int], dilations: list[int], pads: list[int],
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path,
) -> None:  # fmt: skip
    from kintune.compiler.graph.assemble import assemble

    path = block(tmp_path / "m.onnx", groups, depth, width, strides=strides, dilations=dilations, pads=pads)
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np.float32)
    (ours,) = run_program(assemble(lowered(path, cpu), {}, cpu), x)
    (theirs,) = run_onnxruntime(path, x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
