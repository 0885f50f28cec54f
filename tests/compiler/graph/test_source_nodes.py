"""The first node that fails is found and named, and subgraphs lead back to the user's nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

pytestmark = pytest.mark.tvm

OPERATORS = ("relu", "exp", "tanh", "negative", "sigmoid", "sqrt")


def chain() -> object:
    """A network of one operator after another, with a branch beside them."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            at = x
            aside = builder.emit(relax.op.abs(x), name_hint="aside")
            for name in OPERATORS:
                operator = relax.op.nn.relu if name == "relu" else getattr(relax.op, name)
                at = builder.emit(operator(at), name_hint=name)
            output = builder.emit_output(relax.op.add(at, aside))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_first_node_that_fails_is_named(operator: str) -> None:
    from kintune.compiler.graph.source_nodes import first_failing_node
    from kintune.models.model import ImportedModel

    module = chain()
    sources = {name: f"t_{name}" for name in OPERATORS}
    nodes = {f"t_{name}": f"Op '{name}'" for name in OPERATORS}
    model = ImportedModel("chain", "", module, (), (), sources=sources, nodes=nodes)

    def attempt(part: object) -> None:
        if f"R.{operator}(" in str(part) or f"R.nn.{operator}(" in str(part):
            raise RuntimeError("it fails")

    assert first_failing_node(model, attempt) == f"Op '{operator}'"


def test_beginnings_lower(  # as any module does
) -> None:
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.source_nodes import first_bindings

    module = chain()
    for count in (1, 3, 8):
        lowered = lower(first_bindings(module, count), tvm.target.Target({"kind": "llvm", "num-cores": 1}))
        assert lowered.workloads


def test_nodes_are_told_by_operator_and_size(tmp_path: Path) -> None:
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.source_nodes import nodes_of
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
        helper.make_node("Relu", ["s"], ["t"], "again"),
        helper.make_node("Conv", ["t", "c"], ["y"], "third"),
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
