from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper

from kintune.service.upload_inspection import examine
from tests.support.service_users import dynamic_onnx


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
