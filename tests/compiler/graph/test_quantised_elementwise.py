"""Scales become tensors where that leaves shapes as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.quantised import Written, lowered, run_onnxruntime, run_untuned

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_factor_before_quantising_changes_no_shape(shape: tuple[int, ...]) -> None:
    from tvm import relax

    from kintune.compiler.graph.quantised_elementwise import ScalesAsTensors

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    one, point = relax.const(np.float32(1.0)), relax.const(np.uint8(3))
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(x, relax.const(np.float32(0.5))))
            found = builder.emit_output(relax.op.quantize(scaled, one, point, -1, "uint8"))
        builder.emit_func_output(found)
    done = ScalesAsTensors()(builder.get())["main"]
    product = done.body.blocks[0].bindings[0]
    assert tuple(int(extent) for extent in product.var.ty.shape) == shape
    assert int(product.value.args[1].ty.ndim) == len(shape)


def test_products_that_differ_in_scales_and_zero_points_are_one_kernel(tmp_path: Path) -> None:
    layers = [(0.5, 100), (0.25, 240)]
    nodes, weights, x = [], [], "x"
    for at, (scale, point) in enumerate(layers):
        drawn = np.random.default_rng(at).integers(0, 256, (16, 16)).astype(np.uint8)
        named = {f"w{at}": drawn, f"p{at}": np.array(point, np.uint8), f"s{at}": np.array(scale, np.float32)}
        weights += [numpy_helper.from_array(values, name) for name, values in named.items()]
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], [f"q{at}", f"d{at}", f"z{at}"]),
            helper.make_node("MatMulInteger", [f"q{at}", f"w{at}", f"z{at}", f"p{at}"], [f"i{at}"]),
            helper.make_node("Cast", [f"i{at}"], [f"f{at}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"d{at}", f"s{at}"], [f"m{at}"]),
            helper.make_node("Mul", [f"f{at}", f"m{at}"], [f"y{at}"]),
        ]
        x = f"y{at}"
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])
    made = helper.make_tensor_value_info(x, TensorProto.FLOAT, [4, 16])
    graph = helper.make_graph(nodes, "layers", [given], [made], weights)
    path = tmp_path / "layers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    written = Written(path, {"x": np.random.default_rng(9).standard_normal((4, 16)).astype(np.float32)}, 0.0)
    network, _ = lowered(written, "cascadelake")
    multiplied = [each for each in network.workloads if "kintune.bytes" in str(each.module.script())]
    assert {each.name.rstrip("1234567890"): each.occurrences for each in multiplied if "sum" in each.name} == {"sum": 2}
    assert [each.occurrences for each in multiplied if "matmul" in each.name] == [2]
    np.testing.assert_allclose(run_untuned(written), run_onnxruntime(written), rtol=1e-5)
