from pathlib import Path

import numpy as np

from kintune.validate.baselines import BaselineModel, make_baseline
from kintune.validate.baselines.onnx_runtime import weights_of_shapes


def test_a_reference_does_not_saturate_products_of_bytes(tmp_path: Path) -> None:
    """Two products of 255 and 127 exceed 16 bits, in which CPUs without VNNI add them."""
    import onnx
    from onnx import helper, numpy_helper

    weight = numpy_helper.from_array(np.full((64, 8), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [4, 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [4, 8])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    reference = make_baseline("onnxruntime", exact=True)
    reference.prepare(BaselineModel(onnx=str(path)), 1, {"x": np.full((4, 64), 255, np.uint8)})
    assert (reference.run()[0] == 64 * 255 * 127).all()


def test_a_reference_computes_final_sigmoids_exactly(tmp_path: Path) -> None:
    import onnx
    from onnx import parser

    path, values = tmp_path / "m.onnx", np.array([-30.0, -17.0, 0.5], np.float32)
    onnx.save(
        parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m (float[3] x) => (float[3] y) { y = Sigmoid(x) }'),
        path,
    )
    for exact in (True, False):
        runtime = make_baseline("onnxruntime", exact=exact)
        runtime.prepare(BaselineModel(onnx=str(path)), 1, {"x": values})
        found, wanted = runtime.run()[0], 1 / (1 + np.exp(-values.astype(np.float64)))
        assert np.allclose(found, wanted, rtol=1e-6, atol=0) is exact


def test_noise_leaves_the_weights_alone_from_which_extents_are_computed() -> None:
    from onnx import parser

    graph = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        m (float[1, 2, 4, 4] x, float[2] w) => (float[1, 2, 8, 8] y) {
            s = Identity(scales)
            a = Conv(x, kernel)
            e = Shape(a)
            f = Cast<to = 1>(e)
            d = Slice(f, zero, two)
            all = Mul(s, f)
            y = Resize(a, roi, all)
        }"""
    ).graph
    assert {"scales", "roi", "f", "e"} <= weights_of_shapes(graph)
    assert weights_of_shapes(graph).isdisjoint({"kernel", "x", "w", "a"})
