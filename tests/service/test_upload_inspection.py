from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper

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


def test_an_input_that_is_no_tensor_is_a_problem(tmp_path: Path) -> None:
    model = dynamic_onnx()
    model.graph.input.append(helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, [2]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    found = examine(tmp_path / "net.onnx")
    assert found.problem == "its input many is not a tensor (sequence); inputs are arrays of numbers or strings"
