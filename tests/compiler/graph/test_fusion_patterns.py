from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm


def test_an_enlarged_map_is_added_in_the_epilogue_of_a_convolution(
    cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.space.sketches import generate_sketches

    rng = np.random.default_rng(2)
    small, large = rng.random((1, 8, 4, 4), dtype="float32"), rng.random((1, 3, 8, 8), dtype="float32")
    weight = rng.random((8, 3, 1, 1), dtype="float32")
    builder = relax.BlockBuilder()
    x, y = (relax.Var("input", relax.TensorType(array.shape, "float32")) for array in (small, large))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            lateral = builder.emit(relax.op.nn.conv2d(y, relax.const(weight)))
            top = builder.emit(relax.op.nn.conv2d(x, relax.const(np.eye(8, dtype="float32")[:, :, None, None])))
            enlarged = builder.emit(relax.op.repeat(builder.emit(relax.op.repeat(top, 2, 2)), 2, 3))
            found = builder.emit_output(relax.op.add(lateral, enlarged))
        builder.emit_func_output(found)
    lowered = lower(builder.get(), cpu)
    (fused,) = [w for w in lowered.workloads if "repeat" in w.signature]
    assert fused.reduces
    assert generate_sketches(fused.digest, fused.module, cpu)
    (result,) = run_program(assemble(lowered, {}, cpu), small, large)
    wanted = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], large) + small.repeat(2, 2).repeat(2, 3)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_a_repetition_that_is_a_result_stays(cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.repeat(builder.emit(relax.op.repeat(relax.op.exp(x), 2, 0)), 3, 1))
        builder.emit_func_output(found)
    array = np.arange(6, dtype="float32").reshape(2, 3)
    (result,) = run_program(assemble(lower(builder.get(), cpu), {}, cpu), array)
    np.testing.assert_allclose(result, np.exp(array).repeat(2, 0).repeat(3, 1), rtol=1e-6)


@pytest.mark.parametrize("kind", ["longer", "shorter", "longer than one"])
def test_what_is_put_behind_a_result_is_not_its_epilogue(kind: str, cpu: tvm.target.Target) -> None:
    """The epilogue of a convolution covers what that computes: rows and columns behind it would stay unwritten."""
    from tvm import relax

    from kintune.compiler.graph.lower import lower

    builder = relax.BlockBuilder()
    size = (3, 3) if kind == "longer than one" else (6, 5)
    x = relax.Var("x", relax.TensorType((1, 3, *size), "float32"))
    weight = relax.const(np.ones((4, 3, 3, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, weight)))
            if kind != "shorter":
                found = relax.op.nn.pad(found, [0, 0, 0, 0, 0, 1, 0, 1])
            else:
                found = relax.op.strided_slice(found, [2, 3], [0, 0], [3, 2])
            result = builder.emit_output(found)
        builder.emit_func_output(result)
    for conservative in (False, True):
        kernels = [w.signature for w in lower(builder.get(), cpu, conservative=conservative).workloads]
        assert "conv2d-relu" in kernels, kernels


def test_what_one_element_is_broadcast_to_may_follow_a_product(cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.graph.lower import lower

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 6, 5), "float32"))
    scale = relax.Var("scale", relax.TensorType((1, 4, 1, 1), "float32"))
    weight = relax.const(np.ones((4, 3, 3, 3), "float32"))
    with builder.function("main", [x, scale]):
        with builder.dataflow():
            product = builder.emit(relax.op.nn.conv2d(x, weight))
            found = builder.emit(relax.op.multiply(product, scale))
            result = builder.emit_output(relax.op.nn.relu(found))
        builder.emit_func_output(result)
    assert "conv2d-multiply-relu" in [w.signature for w in lower(builder.get(), cpu, conservative=True).workloads]
