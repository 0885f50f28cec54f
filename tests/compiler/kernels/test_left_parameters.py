"""Products whose left operand is a parameter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.tvm


def test_programs_are_offered_and_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune_lab.fuzz.compiling import Compiler

    weights = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    node = helper.make_node("MatMul", ["w", "x"], ["y"])
    shapes = (("x", [3, 5]), ("y", [8, 5]))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    graph = helper.make_graph([node], "product", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    compiler, imported = Compiler(), load(parse_ref(str(tmp_path / "model.onnx")))
    lowered = compiler.lower(imported)
    programs = compiler.first_programs(lowered)
    assert "fail" not in caplog.text
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    found = compiler.build(imported, lowered, programs).run({"x": x})["y"]
    np.testing.assert_allclose(found, weights @ x, rtol=1e-5, atol=1e-6)
