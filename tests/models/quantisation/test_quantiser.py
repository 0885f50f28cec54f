from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from kintune.errors import ModelError
from kintune.models.quantisation.output_error import output_error
from kintune.models.quantisation.quantiser import Quantiser, check_unquantised, open_on, run
from kintune.models.quantisation.switched import SwitchedModel
from tests.support.quantisable import sets_of_inputs, write_network

SETS = sets_of_inputs(3)


@pytest.fixture
def quantiser(tmp_path: Path) -> Quantiser:
    return Quantiser(write_network(tmp_path / "small.onnx"), SETS, SETS[0], tmp_path, 1)


def count(model: ModelProto, operator: str) -> int:
    return sum(node.op_type == operator for node in model.graph.node)


def test_layers_are_convolutions_and_products_with_constant_weights(quantiser: Quantiser) -> None:
    saved = {layer.name: layer.saved_us for layer in quantiser.layers}
    assert len(saved) == 4
    assert {"first", "second", "head"} <= saved.keys()
    assert saved["second"] == max(saved.values())
    assert saved["head"] == min(saved.values())


def test_only_what_is_named_is_quantised(quantiser: Quantiser) -> None:
    one = quantiser.quantised(["second"])
    every = quantiser.quantised([layer.name for layer in quantiser.layers])
    assert count(one, "QuantizeLinear") == 1  # the weights are integers already
    assert count(every, "QuantizeLinear") == 4
    assert count(one, "Conv") == count(every, "Conv") == 3


@pytest.mark.parametrize("names", [["first"], ["second", "head"], ["first", "second", "head"]])
def test_the_switched_model_computes_what_the_quantised_one_does(quantiser: Quantiser, names: list[str]) -> None:
    every = [layer.name for layer in quantiser.layers]
    switched = SwitchedModel(quantiser.plain, quantiser.quantised(every), every, 1)
    plain, session = open_on(quantiser.plain, 1, exact=True), open_on(quantiser.quantised(names), 1, exact=True)
    for feeds in SETS:
        wanted = run(session, feeds)
        assert output_error(switched.run(names, feeds), wanted) < 1e-5
        assert output_error(switched.run([], feeds), run(plain, feeds)) < 1e-6
        assert 1e-4 < output_error(wanted, run(plain, feeds)) < 0.1


def test_an_older_opset_is_brought_up_to_date(tmp_path: Path) -> None:
    path = write_network(tmp_path / "old.onnx", opset=11)
    assert len(Quantiser(path, SETS, SETS[0], tmp_path, 1).layers) == 4


def test_weights_may_lie_in_a_file_beside_the_model(tmp_path: Path) -> None:
    path, work = write_network(tmp_path / "small.onnx"), tmp_path / "work"
    work.mkdir()
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="small.data")
    assert any(tensor.external_data for tensor in onnx.load(path, load_external_data=False).graph.initializer)
    assert len(Quantiser(path, SETS, SETS[0], work, 1).layers) == 4


def test_a_product_may_have_a_bias_of_two_axes(tmp_path: Path) -> None:
    """onnxruntime makes such a bias of a product and a sum, and its quantiser fails on it."""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 16), "b": (1, 16), "v": (16, 4)}
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        onnx.helper.make_node("Add", ["h", "b"], ["s"]),
        onnx.helper.make_node("Relu", ["s"], ["r"]),
        onnx.helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, [3, size]) for name, size in (("x", 8), ("y", 4))]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    path = tmp_path / "product.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    feeds = {"x": rng.standard_normal((3, 8)).astype(np.float32)}
    quantiser = Quantiser(path, [feeds], feeds, tmp_path, 1)
    quantised = quantiser.quantised([layer.name for layer in quantiser.layers])
    assert count(quantised, "QuantizeLinear") >= 2
    error = output_error(run(open_on(path, 1), feeds), run(open_on(quantised, 1), feeds))
    assert 0 < error < 0.05


def test_a_quantised_model_needs_no_calibration(quantiser: Quantiser, tmp_path: Path) -> None:
    path = tmp_path / "done.onnx"
    onnx.save(quantiser.quantised(["second"]), path)
    with pytest.raises(ModelError, match=r"is quantised already .* and needs no calibration"):
        check_unquantised(path)


def test_a_model_without_products_is_refused(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, 16, 16]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    path = tmp_path / "relu.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ModelError, match="has no convolutions or products"):
        Quantiser(path, SETS, SETS[0], tmp_path, 1)
