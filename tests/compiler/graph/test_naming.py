"""Subgraphs lead back to the user's nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

pytestmark = pytest.mark.tvm


def test_nodes_are_told_by_operator_and_size(tmp_path: Path) -> None:
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.naming import nodes_of
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    weights = [
        numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "a"),
        numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float32), "b"),
        numpy_helper.from_array(np.ones((5, 8, 1, 1), np.float32), "c"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Conv", ["r", "b"], ["s"], "second"),
        helper.make_node("Conv", ["s", "c"], ["y"], "third"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 6, 6])],
        weights,
    )
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    model = load(parse_ref(str(path), []))
    lowered = lower(model.module, tvm.target.Target({"kind": "llvm", "num-cores": 1}))
    found = nodes_of(model, lowered.workloads)
    convolutions = [found[w.digest] for w in lowered.workloads if w.signature.startswith("conv2d")]
    assert sorted(convolutions) == [("Conv 'first'", "Conv 'second'")] * 2 + [("Conv 'third'",)]
