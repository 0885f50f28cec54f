"""Norms, as they are lowered, in the layouts in which networks have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.networks import lower_operator

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm


def _normed(
    x: np.ndarray[Any, Any], axes: tuple[int, ...], epsilon: float, *, centred: bool = True
) -> np.ndarray[Any, Any]:
    wide = x.astype(np.float64)
    moved = wide - wide.mean(axes, keepdims=True) if centred else wide
    return moved / np.sqrt((moved**2).mean(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("far", [0.0, 1000.0])
@pytest.mark.parametrize("shape", [(2, 12, 5, 7), (1, 64, 33, 40), (3, 4, 1, 9)])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("last", [False, True])
def test_group_norms(
    far: float, shape: tuple[int, ...], groups: int, last: bool, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble

    rng = np.random.default_rng(1)
    batch, channels, *pixels = shape
    x = rng.standard_normal(shape, dtype=np.float32) + np.float32(far)
    scale, offset = rng.random((2, channels), dtype=np.float32)
    given, axes, channel = (x.transpose(0, 2, 3, 1), [1, 2], 3) if last else (x, [2, 3], 1)
    lowered = lower_operator(
        given.shape,
        lambda v: relax.op.nn.group_norm(v, relax.const(scale), relax.const(offset), groups, channel, axes, 1e-5),
        cpu,
    )
    wanted = _normed(x.reshape(batch, groups, channels // groups, *pixels), (2, 3, 4), 1e-5).reshape(shape)
    wanted = wanted * scale[:, None, None] + offset[:, None, None]
    (found,) = run_program(assemble(lowered, {}, cpu), np.ascontiguousarray(given))
    tolerance = 1e-3 if far else 1e-5  # what rounding to float32 leaves of the input itself
    np.testing.assert_allclose(found, wanted.transpose(0, 2, 3, 1) if last else wanted, rtol=1e-3, atol=tolerance)


@pytest.mark.parametrize("axes", [[3], [1], [2, 3], [1, 2]])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_over_axes(name: str, axes: list[int], cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble

    rng = np.random.default_rng(1)
    shape = (2, 6, 5, 40)
    x = rng.standard_normal(shape, dtype=np.float32)
    extents = [shape[axis] for axis in axes]
    scale, offset = rng.random((2, *extents), dtype=np.float32)
    spread = [shape[axis] if axis in axes else 1 for axis in range(4)]
    wanted = _normed(x, tuple(axes), 1e-3, centred=name == "layer_norm") * scale.reshape(spread)
    if name == "layer_norm":
        wanted = wanted + offset.reshape(spread)

    def operator(v: Any) -> Any:
        if name == "rms_norm":
            return relax.op.nn.rms_norm(v, relax.const(scale), axes, 1e-3)
        return relax.op.nn.layer_norm(v, relax.const(scale), relax.const(offset), axes, 1e-3)

    (found,) = run_program(assemble(lower_operator(shape, operator, cpu), {}, cpu), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_norm_takes_what_follows_it_and_else_what_comes_before(cpu: tvm.target.Target) -> None:
    from tvm import relax

    ones, zeros = relax.const(np.full(16, 2, np.float32)), relax.const(np.full(16, 3, np.float32))

    def norm(v: Any) -> Any:
        return relax.op.nn.layer_norm(v, ones, zeros, [-1 % 3])

    def names(operator: Callable[[Any], Any]) -> list[str]:
        return [workload.signature for workload in lower_operator((2, 8, 16), operator, cpu).workloads]

    assert names(lambda v: relax.op.nn.relu(norm(v))) == ["layer-norm-relu"]
    assert names(lambda v: relax.op.nn.silu(norm(v))) == ["layer-norm-silu"]
    assert names(lambda v: norm(relax.op.nn.relu(v))) == ["relu-layer-norm"]


def test_a_norm_of_channels_that_lie_last_leaves_its_scaling_to_its_neighbours(cpu: tvm.target.Target) -> None:
    from tvm import relax

    scale, offset = (relax.const(np.full(12, value, np.float32)) for value in (2, 3))
    lowered = lower_operator(
        (1, 5, 7, 12), lambda v: relax.op.nn.silu(relax.op.nn.group_norm(v, scale, offset, 4, 3, [1, 2])), cpu
    )
    assert [workload.signature for workload in lowered.workloads] == ["norm-statistics", "group-norm-silu"]
