"""Weights of products quantised to 4 and 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.errors import ModelError
from kintune.models.quantisation.weights import BLOCK, WeightQuantiser, dequantised, quantised_blocks


def drawn(*shape: int) -> Any:
    """Values that depend on the shape alone."""
    return (np.random.default_rng(shape).standard_normal(shape) * 0.05).astype(np.float32)


def write_network(path: Path) -> dict[str, Any]:
    """Three large products, one of them by a transposed table of which rows are taken too, and a small one."""
    weights = {
        "w": drawn(256, 320),
        "g": drawn(288, 320),
        "c": drawn(288),
        "table": drawn(300, 288),
        "s": drawn(300, 8),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "g", "c"], ["b"], "second", transB=1),
        helper.make_node("Gather", ["table", "ids"], ["rows"], "rows of it"),
        helper.make_node("Add", ["b", "rows"], ["d"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["d", "turned"], ["e"], "last"),
        helper.make_node("MatMul", ["e", "s"], ["y"], "small"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 256]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": drawn(2, 256) * 20, "ids": np.array([3, 299])}


def run(model: Any, feeds: dict[str, Any]) -> Any:
    import onnxruntime

    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    (found,) = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)
    return found


@given(st.integers(1, 100), st.integers(1, 9), st.sampled_from((4, 8)), st.integers(0, 9))
def test_a_weight_is_off_by_half_a_step_or_one_at_the_end(inputs: int, columns: int, bits: int, seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((inputs, columns)).astype(np.float32)
    integers, scales = quantised_blocks(weights, bits)
    assert integers.shape == (columns, -(-inputs // BLOCK), BLOCK * bits // 8)
    found = dequantised(integers, scales, bits, inputs)
    steps = np.repeat(np.abs(scales), BLOCK, axis=1)[:, :inputs].T
    apart = np.abs(found - weights)
    assert (apart <= steps * 1.001).all()
    assert (apart <= steps * 0.501).mean() >= 0.5


def test_zeros_stay_zeros() -> None:
    integers, scales = quantised_blocks(np.zeros((64, 2), np.float32), 4)
    assert not scales.any()
    assert not dequantised(integers, scales, 4, 64).any()


def test_a_transpose_that_keeps_the_order_is_none(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["same"], perm=[0, 1]),
        helper.make_node("MatMul", ["x", "same"], ["a"], "first"),
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("MatMul", ["a", "turned"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 256])],
        [numpy_helper.from_array(drawn(256, 256), "w")],
    )
    path, written = tmp_path / "network.onnx", tmp_path / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    quantiser, feeds = WeightQuantiser(path, 8), {"x": drawn(2, 256)}
    quantiser.save([layer.name for layer in quantiser.layers], written)
    wanted = run(path, feeds)
    assert [layer.name for layer in quantiser.layers] == ["last"]
    assert np.linalg.norm(run(written, feeds) - wanted) < 0.03 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("bits", "most"), [(4, 0.4), (8, 0.03)])
def test_the_model_with_quantised_weights(tmp_path: Path, bits: int, most: float) -> None:
    path = tmp_path / "network.onnx"
    feeds = write_network(path)
    quantiser = WeightQuantiser(path, bits)
    names = [layer.name for layer in quantiser.layers]
    assert names == ["first", "second", "last"]
    assert all(layer.saved_us > 0 for layer in quantiser.layers)
    wanted = run(path, feeds)
    written = tmp_path / "quantised.onnx"
    quantiser.save(names, written)
    found = run(written, feeds)
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 0 < error < most
    model = onnx.load(written)
    assert [node.op_type for node in model.graph.node].count("MatMulNBits") == 3
    kept = {tensor.name for tensor in model.graph.initializer}
    assert {"table", "s", "c"} <= kept
    assert not {"w", "g"} & kept
    assert "Transpose" not in {node.op_type for node in model.graph.node}

    switched = quantiser.switched()
    plain = {quantiser.switch(name): quantiser.matrix(name) for name in names}
    np.testing.assert_allclose(run(switched, {**feeds, **plain}), wanted, rtol=1e-4, atol=1e-5)
    rounded = {
        quantiser.switch(name): dequantised(*quantised_blocks(each, bits), bits, len(each))
        for name, each in ((name, quantiser.matrix(name)) for name in names)
    }
    np.testing.assert_allclose(run(switched, {**feeds, **rounded}), found, rtol=1e-3, atol=1e-4)

    quantiser.save(["second"], written)
    assert [node.name for node in onnx.load(written).graph.node if node.op_type == "MatMulNBits"] == ["second"]


@pytest.mark.parametrize("version", [3, 8])
def test_weights_that_are_inputs_as_well_are_quantised(tmp_path: Path, version: int) -> None:
    path, written = tmp_path / "network.onnx", tmp_path / "quantised.onnx"
    feeds = write_network(path)
    WeightQuantiser(path, 8).save(["first", "last"], written)
    wanted = run(written, feeds)
    model = onnx.load(path)
    model.ir_version = version
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims))
    onnx.save(model, path)
    quantiser = WeightQuantiser(path, 8)
    quantiser.save(["first", "last"], written)
    np.testing.assert_array_equal(run(written, feeds), wanted)
    assert [port.name for port in onnx.load(written).graph.input] == ["x", "ids"]
    switches = [quantiser.switch(layer.name) for layer in quantiser.layers]
    assert [port.name for port in quantiser.switched().graph.input] == ["x", "ids", *switches]


def test_a_model_without_large_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(drawn(8, 8), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ModelError, match="no products of matrices with constant fp32 weights of 256 x 256 or more"):
        WeightQuantiser(path, 4)
    path.write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot be quantised"):
        WeightQuantiser(path, 4)
