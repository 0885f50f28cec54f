from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper

from kintune.service import upload_inspection
from kintune.service.upload_inspection import examine
from tests.support.service_users import dynamic_onnx
from tests.support.string_models import write_classifier, write_text_model


def test_of_very_many_inputs_and_outputs_some_are_told(tmp_path: Path) -> None:
    model = dynamic_onnx()
    graph = model.graph
    for number in range(1500):  # which as many weights allow
        graph.initializer.append(helper.make_tensor(f"w{number}", TensorProto.FLOAT, [0], []))
        graph.input.append(helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, [1]))
        graph.output.append(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, [1]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    found = examine(tmp_path / "net.onnx")
    assert (found.problem, len(found.inputs), len(found.outputs)) == ("", 1000, 1000)


def test_strings_and_sequences_are_named(tmp_path: Path) -> None:
    write_text_model(tmp_path / "t.onnx")
    found = examine(tmp_path / "t.onnx")
    assert (found.problem, [(each.name, each.dtype) for each in found.inputs]) == (
        "", [("words", "string"), ("x", "float32")],
    )  # fmt: skip
    write_classifier(tmp_path / "c.onnx")
    found = examine(tmp_path / "c.onnx")
    assert [(each.name, each.shape, each.dtype) for each in found.outputs] == [
        ("label", (64,), "string"), ("probabilities", (), "sequence"),
    ]  # fmt: skip


def test_a_graph_with_very_many_nodes_is_refused_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_inspection, "_MOST_NODES", 5)
    model = dynamic_onnx()
    model.graph.node.extend(helper.make_node("Relu", ["y"], [f"y{number}"]) for number in range(4))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert examine(tmp_path / "net.onnx").problem == "it has more than 5 nodes, which is the limit here"


def test_inputs_and_outputs_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    model = dynamic_onnx()
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1 << 40, 1 << 20]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert "of this machine do not suffice" in examine(tmp_path / "net.onnx").problem


def test_an_input_that_is_no_tensor_is_a_problem(tmp_path: Path) -> None:
    model = dynamic_onnx()
    model.graph.input.append(helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, [2]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    found = examine(tmp_path / "net.onnx")
    assert found.problem == "its input many is not a tensor (sequence); inputs are arrays of numbers or strings"


def elsewhere(name: str = "k") -> TensorProto:
    """A tensor whose elements lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="0" * 64)
    return tensor


def in_the_graph(model: ModelProto) -> None:
    model.graph.initializer.append(elsewhere())


def in_a_function(model: ModelProto) -> None:
    body = [helper.make_node("Constant", [], ["k"], value=elsewhere())]
    model.functions.append(helper.make_function("mine", "K", [], ["k"], body, list(model.opset_import)))


def in_a_branch(model: ModelProto) -> None:
    branch = helper.make_graph([], "b", [], [], [elsewhere()])
    model.graph.node.append(helper.make_node("If", ["c"], [], then_branch=branch, else_branch=branch))


def in_sparse_weights(model: ModelProto) -> None:
    model.graph.sparse_initializer.append(SparseTensorProto(values=elsewhere(), dims=[8]))


def in_a_sparse_attribute(model: ModelProto) -> None:
    attribute = AttributeProto(name="sparse_value", type=AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.indices.CopyFrom(elsewhere())
    model.graph.node.append(helper.make_node("Constant", [], ["k"]))
    model.graph.node[-1].attribute.append(attribute)


def in_what_is_for_training(model: ModelProto) -> None:
    model.training_info.add().algorithm.initializer.append(elsewhere())


@pytest.mark.parametrize(
    "put", [in_the_graph, in_a_function, in_a_branch, in_sparse_weights, in_a_sparse_attribute, in_what_is_for_training]
)
def test_weights_in_other_files_are_a_problem_wherever_they_are(
    tmp_path: Path, put: Callable[[ModelProto], None]
) -> None:
    model = dynamic_onnx()
    put(model)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert examine(tmp_path / "net.onnx").problem == (
        "its weights lie in other files; save it as one file and upload that"
    )


def test_an_inspection_without_memory_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def out_of_memory(path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr(upload_inspection, "examine", out_of_memory)
    monkeypatch.setattr("kintune.service.upload_inspection.resource.setrlimit", lambda *_: None)
    with pytest.raises(SystemExit):
        upload_inspection.main(["net.onnx"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("nested", [False, True])
def test_a_weight_that_promises_more_than_is_stored_is_a_problem(tmp_path: Path, nested: bool) -> None:
    model, tensor = dynamic_onnx(), TensorProto(name="huge", data_type=1, dims=[2**40, 2**40], raw_data=bytes(64))
    if nested:
        model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    else:
        model.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert examine(path).problem.startswith("its weight 'huge' is damaged: its shape 1099511627776x1099511627776 needs")
