from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.errors import ModelError
from kintune.models.onnx import read


def digest(path: Path, **shapes: tuple[int, ...]) -> str:
    return read(path, shapes, own=True).digest


def test_a_file_is_read_with_large_weights_outside(samples: Any, capfd: pytest.CaptureFixture[str]) -> None:
    model = read(samples.write(samples.linear_model()), {})
    assert model.inputs == {"x": (2, 64)}
    assert {name: values.shape for name, values in model.weights.items()} == {"w": (64, 512)}
    assert [value.name for value in model.proto.graph.input] == ["x", "w"]
    assert model.opset == 17
    assert capfd.readouterr() == ("", "")


def test_shape_computations_are_folded(samples: Any) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    ports = [("x", TensorProto.FLOAT, ["n", 8, 8])], [("y", TensorProto.FLOAT, ["n", 64])]
    weights = {"zero": np.array([0]), "rest": np.array([-1])}
    model = read(samples.write(samples.make_model(nodes, *ports, weights)), {"x": (3, 8, 8)})
    assert [node.op_type for node in model.proto.graph.node] == ["Reshape"]


def test_batch_norms_are_folded_into_convolutions(samples: Any) -> None:
    from kintune.models import zoo

    path = zoo.write("mobilenet_v1_0.5", samples.directory, image=32)
    kinds = {node.op_type for node in read(path, {}).proto.graph.node}
    assert "Conv" in kinds
    assert "BatchNormalization" not in kinds


def test_inputs_keep_their_names_and_order_even_when_unused(samples: Any) -> None:
    nodes = [helper.make_node("Relu", ["a.b/c:0"], ["out.1"]), helper.make_node("Identity", ["last"], ["same"])]
    inputs = [("unused", TensorProto.INT64, [2]), ("a.b/c:0", TensorProto.FLOAT, [3]), ("last", TensorProto.FLOAT, [4])]
    outputs = [("out.1", TensorProto.FLOAT, [3]), ("same", TensorProto.FLOAT, [4])]
    model = read(samples.write(samples.make_model(nodes, inputs, outputs)), {})
    assert list(model.inputs) == ["unused", "a.b/c:0", "last"]
    assert [value.name for value in model.proto.graph.output] == ["out.1", "same"]


def test_outputs_keep_their_names_and_order_whatever_they_are(samples: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Identity", ["r"], ["copy"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Neg", ["w"], ["folded"]),
    ]
    names = {"copy": [2], "x": [2], "r": [2], "w": [3], "folded": [3], "shape": [1]}
    outputs = [(name, TensorProto.INT64 if name == "shape" else TensorProto.FLOAT, names[name]) for name in names]
    weights = {"w": np.ones(3, np.float32)}
    model = read(samples.write(samples.make_model(nodes, [("x", TensorProto.FLOAT, [2])], outputs, weights)), {})
    assert list(model.inputs) == ["x"]
    assert [value.name for value in model.proto.graph.output] == list(names)


def test_the_digest_follows_the_content_alone(samples: Any) -> None:
    first = samples.write(samples.linear_model(), "first.onnx")
    renamed = samples.linear_model()
    renamed.producer_name, renamed.doc_string, renamed.graph.doc_string = "somebody", "else", "!"
    renamed.graph.node[0].doc_string = "a product"
    renamed.graph.initializer.reverse()
    assert digest(samples.write(renamed, "second.onnx")) == digest(first)
    assert len(digest(first)) == 32


def test_the_digest_does_not_care_where_weights_lie(samples: Any) -> None:
    embedded = digest(samples.write(samples.linear_model(), "embedded.onnx"))
    values = np.random.default_rng(0).standard_normal((64, 512), dtype=np.float32)
    path = samples.write_external("w.data", length=values.nbytes)
    (path.parent / "w.data").write_bytes(values.tobytes())
    assert digest(path) == embedded


def test_another_weight_operator_or_shape_is_another_digest(samples: Any) -> None:
    digests = {digest(samples.write(samples.linear_model(seed=seed), f"{seed}.onnx")) for seed in range(3)}
    changed = samples.linear_model()
    changed.graph.node[2].op_type = "Sigmoid"
    digests.add(digest(samples.write(changed, "changed.onnx")))
    open_model = samples.write(samples.linear_model(rows="n"), "open.onnx")
    digests |= {digest(open_model, x=(rows, 64)) for rows in (2, 3)}
    assert len(digests) == 6


def test_shapes_that_the_file_lacks_altogether_come_from_outside(samples: Any) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    proto = samples.make_model([relu], [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
    assert read(samples.write(proto), {"x": (2, 3)}).inputs == {"x": (2, 3)}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=5))
def test_damaged_bytes_are_refused_in_one_line_or_harmless(samples: Any, changes: list[tuple[int, int]]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    ports = [("x", TensorProto.FLOAT, ["n", 3])], [("y", TensorProto.FLOAT, ["n", 3])]
    content = bytearray(samples.make_model(nodes, *ports, {"w": np.ones((3, 3), np.float32)}).SerializeToString())
    for position, value in changes:
        content[position % len(content)] = value
    path = samples.directory / "damaged.onnx"
    path.write_bytes(bytes(content))
    said = ""
    try:
        read(path, {"x": (2, 3)})
    except ModelError as error:
        said = str(error)
    assert "\n" not in said


def test_a_name_that_is_no_text_is_refused(samples: Any) -> None:
    relu = helper.make_node("Relu", ["image"], ["y"])
    model = samples.make_model([relu], [("image", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
    content = model.SerializeToString().replace(b"image", b"im\xffge")
    path = samples.directory / "names.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not UTF-8 text"):
        read(path, {})
