from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from kintune.models import slimming
from kintune.models.evaluation import open_session
from kintune.models.onnx import read
from kintune.models.onnx_nodes import nodes as onnx_nodes
from kintune.models.slimming import Original, Unchecked, slim
from tests.support.string_models import write_classifier, write_text_model

X, Y = ("x", TensorProto.FLOAT, [2, 8]), ("y", TensorProto.FLOAT, None)


def scaled(samples: Any, scale: float, weight: str = "initializer") -> ModelProto:
    """y = x * scale, where the scale is a weight or, as large ones are, an input."""
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    inputs = [X] if weight == "initializer" else [X, ("w", TensorProto.FLOAT, [8])]
    values = {"w": np.full(8, scale, np.float32)} if weight == "initializer" else {}
    model: ModelProto = samples.make_model([node], inputs, [Y], values)
    return model


def test_the_same_function_is_the_same_and_noise_is_none(samples: Any) -> None:
    original = Original(scaled(samples, 2.0), {})
    assert original.difference(scaled(samples, 2.0)) == ""
    assert original.difference(scaled(samples, 2.0 * (1 + 1e-6))) == ""
    assert "output y differs by up to" in original.difference(scaled(samples, 2.1))


def test_weights_outside_are_bound(samples: Any) -> None:
    weights = {"w": np.full(8, 2.0, np.float32)}
    original = Original(scaled(samples, 0.0, "input"), weights)
    assert original.difference(scaled(samples, 2.0)) == ""
    assert original.difference(scaled(samples, 3.0)) != ""


@pytest.mark.parametrize(
    ("operator", "said"),
    [("Shape", "has the shape"), ("Log", "infinities or not-a-numbers"), ("ArgMax", "has the shape"), ("Nonsense", "")],
)
def test_what_else_may_differ_is_said(samples: Any, operator: str, said: str) -> None:
    outputs = [("y", TensorProto.FLOAT if operator == "Log" else TensorProto.INT64, None)]
    other = samples.make_model([helper.make_node(operator, ["x"], ["y"])], [X], outputs)
    found = Original(samples.make_model([helper.make_node("Neg", ["x"], ["y"])], [X], [Y]), {}).difference(other)
    assert said in found
    assert found


RANDOM = [
    *(("RandomNormal", [], {"shape": [2, 8]}), ("RandomUniform", [], {"shape": [2, 8]})),
    *(("RandomNormalLike", ["k"], {}), ("RandomUniformLike", ["k"], {}), ("RandomNormalLike", ["x"], {})),
    *(("Bernoulli", ["k"], {}), ("Multinomial", ["k"], {"sample_size": 8})),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes"), RANDOM)
@pytest.mark.parametrize("branched", [False, True])
def test_numbers_are_drawn_anew_in_each_run(
    samples: Any, operator: str, inputs: list[str], attributes: dict[str, Any], branched: bool
) -> None:
    nodes = [
        *(helper.make_node(operator, inputs, [f"r{number}"], **attributes) for number in (0, 1)),
        *(helper.make_node("Cast", [f"r{number}"], [f"f{number}"], to=TensorProto.FLOAT) for number in (0, 1)),
        helper.make_node("Sub", ["f0", "f1"], ["d"]),
        helper.make_node("Mul", ["d", "x"], ["p"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["p", "s"], ["b" if branched else "y"]),
    ]
    ports = [X]
    if branched:
        body = helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 8])])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
        ports = [X, ("c", TensorProto.BOOL, [])]
    weights = {"k": np.full((2, 8), 0.5, np.float32)}
    model = slim(samples.make_model(nodes, ports, [Y], weights))
    assert [port.name for port in model.graph.input] == [port[0] for port in ports]
    onnx.checker.check_model(model)
    drawn = [list(node.input) for node in onnx_nodes(model) if node.op_type == operator]
    assert drawn == [inputs] * (4 if branched else 2)
    if not branched:
        assert "Shape" not in {node.op_type for node in model.graph.node}


def test_what_cannot_be_run_is_said(samples: Any) -> None:
    with pytest.raises(Unchecked, match="onnxruntime does not take it"):
        Original(samples.make_model([helper.make_node("Nonsense", ["x"], ["y"])], [X], [Y]), {})
    with pytest.raises(Unchecked, match="random"):
        Original(samples.make_model([helper.make_node("RandomUniformLike", ["x"], ["y"])], [X], [Y]), {})
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    model = samples.make_model([node], [X, ("sizes", TensorProto.INT64, [3])], [Y])
    with pytest.raises(Unchecked, match="onnxruntime does not run it"):
        Original(model, {})


def test_inputs_of_any_extents_are_too_large(samples: Any) -> None:
    for shape in ((1 << 40, 0), (1 << 32, 1 << 32), (1 << 31, 1 << 31, 1 << 31)):
        relu = helper.make_node("Relu", ["x"], ["y"])
        model = samples.make_model([relu], [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)])
        with pytest.raises(Unchecked, match="its inputs are too large"):
            Original(model, {})


def test_after_a_run_that_is_ended_no_other_is_made(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def too_long(*_: Any) -> Any:
        runs.append(1)
        raise RuntimeError("terminated")

    monkeypatch.setattr(slimming, "_timed", too_long)
    monkeypatch.setattr(slimming, "_SECONDS", 0.0)
    with pytest.raises(Unchecked, match="onnxruntime does not run it: terminated"):
        Original(samples.linear_model(), {})
    assert len(runs) == 1


def test_a_wrong_rewrite_is_left_out_and_logged(
    samples: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = slimming._slimmed

    def wrong(original: ModelProto, options: dict[str, Any]) -> ModelProto | None:
        model = honest(original, options)
        if model is not None and "no_shape_infer" not in options:
            model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full(8, 5.0, np.float32), "w"))
        return model

    monkeypatch.setattr(slimming, "_slimmed", wrong)
    with caplog.at_level(logging.WARNING):
        slimmed = slim(scaled(samples, 2.0), "model.onnx")
    assert Original(scaled(samples, 2.0), {}).difference(slimmed) == ""
    assert caplog.messages[0].startswith("model.onnx: simplified it computes something else (output y differs by up to")
    assert len(caplog.messages) == 2
    monkeypatch.setattr(slimming, "_slimmed", lambda *_: scaled(samples, 5.0))
    caplog.clear()
    assert Original(scaled(samples, 2.0), {}).difference(slim(scaled(samples, 2.0), "model.onnx")) == ""
    assert caplog.messages[-1] == "model.onnx: the graph is used as it is in the file"


def test_results_keep_their_places(samples: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One part of a constant is read, and becomes a constant; the other is an output of the graph."""
    nodes = [
        helper.make_node("Split", ["w", "sizes"], ["read", "y"], axis=1),
        helper.make_node("Concat", ["x", "read"], ["z"], axis=1),
    ]
    weights = {"w": np.arange(10, dtype=np.float32).reshape(2, 5), "sizes": np.array([2, 3])}
    model = samples.make_model(nodes, [X], [Y, ("z", TensorProto.FLOAT, None)], weights)
    with caplog.at_level(logging.WARNING):
        slimmed = slim(model, "model.onnx")
    assert not caplog.messages
    found = open_session(slimmed).run(None, {"x": np.zeros((2, 8), np.float32)})
    np.testing.assert_array_equal(found[0], weights["w"][:, 2:])


def test_indices_of_one_element_are_zero(samples: Any) -> None:
    gather = helper.make_node("Gather", ["w", "i"], ["y"])
    model = samples.make_model([gather], [("i", TensorProto.INT64, [4])], [Y], {"w": np.ones((1, 8), np.float32)})
    assert Original(model, {}).difference(model) == ""


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_what_onnxruntime_computes_otherwise_is_not_folded(samples: Any, dtype: type) -> None:
    nodes = [helper.make_node("Shrink", ["w"], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = samples.make_model(nodes, [("x", kind, [8])], [("y", kind, None)], {"w": np.linspace(0, 1, 8, dtype=dtype)})
    assert ("Shrink" in [node.op_type for node in slim(model).graph.node]) == (dtype is not np.float32)


def test_pads_made_of_a_reversed_slice_stay_right(samples: Any) -> None:
    """Exporters write the pads of a pool so: (before, after) of each dimension, reversed, transposed, in one row."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["width"]),
        helper.make_node("Mod", ["width", "three"], ["rest"]),
        helper.make_node("Concat", ["zero", "rest", "zero", "zero"], ["flat"], axis=0),
        helper.make_node("Reshape", ["flat", "rows"], ["pairs"]),
        helper.make_node("Slice", ["pairs", "minus", "least", "zero", "minus"], ["reversed"]),
        helper.make_node("Transpose", ["reversed"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["turned", "minus"], ["pads"]),
        helper.make_node("Pad", ["x", "pads"], ["y"]),
    ]
    weights = {
        "last": np.array([1]), "three": np.array([3]), "zero": np.array([0]), "rows": np.array([2, 2]),
        "minus": np.array([-1]), "least": np.array([-(2**63) + 1]),
    }  # fmt: skip
    model = samples.make_model(nodes, [X], [Y], weights)
    x = np.random.default_rng(0).standard_normal((2, 8), np.float32)
    results = [
        onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for one in (model, slim(model))
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("write", [write_classifier, write_text_model])
def test_strings_and_maps_are_compared(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    original = Original(model, {})
    assert original.difference(model) == ""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("classlabels_strings", "keys_strings"):
                attribute.strings[0] = b"other"
    assert original.difference(changed) != ""


@pytest.mark.parametrize("split", ["w", "x"])
def test_parts_of_a_split_may_have_no_name(tmp_path: Path, split: str) -> None:
    """onnxruntime ends the process, where a constant is split as well as an input."""
    nodes = [helper.make_node("Split", [split], ["", "second"], axis=1), helper.make_node("Relu", ["second"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, size]) for name, size in (("x", 4), ("y", 2))]
    weight = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 4), "w")
    graph = helper.make_graph(nodes, "parts", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "parts.onnx")
    session = open_session(read(tmp_path / "parts.onnx", {}).proto)
    (found,) = session.run(None, {"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    np.testing.assert_array_equal(found, [[2, 3], [6, 7]])


def test_a_graph_whose_output_has_no_type_is_simplified(samples: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["same"], ["y"])]
    model = samples.make_model(nodes, [X], [Y])
    model.graph.output[0].ClearField("type")
    onnx.save(model, tmp_path / "untyped.onnx")
    assert [node.op_type for node in read(tmp_path / "untyped.onnx", {}).proto.graph.node] == ["Relu"]


def forest(trees: int) -> ModelProto:
    """Two classifiers of one node a tree, of the same input, and a map of what the second one says."""
    ones = [1.0] * trees
    lists = {
        "nodes_treeids": range(trees), "nodes_nodeids": [0] * trees, "nodes_featureids": [0] * trees,
        "nodes_modes": ["LEAF"] * trees, "nodes_values": ones, "nodes_truenodeids": [0] * trees,
        "nodes_falsenodeids": [0] * trees, "class_treeids": range(trees), "class_nodeids": [0] * trees,
        "class_ids": [each % 2 for each in range(trees)],
    }  # fmt: skip
    nodes = [
        helper.make_node(
            *("TreeEnsembleClassifier", ["x"], [f"label{number}", f"p{number}"]),
            domain="ai.onnx.ml", classlabels_int64s=[0, 1], class_weights=[weight] * trees, **lists,
        )
        for number, weight in enumerate((0.25, 0.5))
    ]  # fmt: skip
    nodes.append(helper.make_node("Cast", ["label1"], ["label"], to=TensorProto.INT64))
    nodes.append(helper.make_node("ZipMap", ["p1"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]))
    of_a_row = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    outputs = [
        helper.make_tensor_value_info("p0", TensorProto.FLOAT, [3, 2]),
        helper.make_tensor_value_info("label", TensorProto.INT64, [3]),
        helper.make_value_info("maps", helper.make_sequence_type_proto(of_a_row)),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph(nodes, "forest", inputs, outputs), opset_imports=opsets, ir_version=8)


def test_long_lists_of_a_forest_are_set_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The library makes an object of Python of each number, several times: 20 GB for a file of 194 MB."""
    import onnxslim

    given = []
    honest = onnxslim.slim

    def watched(model: ModelProto, **options: Any) -> ModelProto:
        given.append(max(len(each.ints) for node in model.graph.node for each in node.attribute))
        return honest(model, **options)

    monkeypatch.setattr(onnxslim, "slim", watched)
    model = forest(5000)
    slimmed = slim(model)
    assert given == [2]
    before, after = (
        [node for node in each.graph.node if node.op_type == "TreeEnsembleClassifier"] for each in (model, slimmed)
    )
    assert [{a.name: helper.get_attribute_value(a) for a in node.attribute} for node in before] == [
        {a.name: helper.get_attribute_value(a) for a in node.attribute} for node in after
    ]
    assert Original(model, {}).difference(slimmed) == ""
    assert not caplog.messages


def test_outputs_that_are_no_tensors_stay_what_they_are(caplog: pytest.LogCaptureFixture) -> None:
    model = forest(4)
    slimmed = slim(model)
    assert [node.op_type for node in slimmed.graph.node][-1] == "ZipMap"
    assert "Cast" not in [node.op_type for node in slimmed.graph.node]
    assert slimmed.graph.output[2] == model.graph.output[2]
    assert not caplog.messages


def test_products_of_bytes_are_not_folded() -> None:
    """onnxruntime's saturate on CPUs without VNNI."""
    values = {"a": np.full((2, 4), 255, np.uint8), "b": np.full((4, 3), 127, np.int8)}
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["y"])]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, (2, 3))]
    model = helper.make_model(helper.make_graph(nodes, "g", [], outputs, constants))
    assert "MatMulInteger" in [node.op_type for node in slim(model).graph.node]
