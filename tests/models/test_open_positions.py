"""Ranges and repeated constants of open extents, as inputs of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from kintune.models.open_positions import take_positions_out

pytestmark = pytest.mark.tvm


def model_of(*nodes: Any) -> ModelProto:
    """These nodes on `x`, 2 x 6, whose extents are `rows` and `columns`."""
    numbers = {"zero": 0, "one": 1, "two": 2, "half": 0.5, "both": [2, 6]}
    weights = [
        numpy_helper.from_array(np.array(value, np.float32 if isinstance(value, float) else np.int64), name)
        for name, value in numbers.items()
    ]
    sizes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["columns"]),
        helper.make_node("Unsqueeze", ["columns", "first"], ["length"]),
    ]
    weights.append(numpy_helper.from_array(np.array([0], np.int64), "first"))
    end = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])
    graph = helper.make_graph([*sizes, *nodes], "positions", [x], [end], weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def taken(model: ModelProto) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in take_positions_out(model, {}, 17).items()}


def test_a_range_up_to_an_open_extent_is_taken_out() -> None:
    model = model_of(
        helper.make_node("Range", ["zero", "columns", "two"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    )
    assert taken(model) == {"places": [0, 2, 4]}
    assert [(port.name, len(port.type.tensor_type.shape.dim)) for port in model.graph.input] == [
        ("x", 2),
        ("places", 1),
    ]
    assert "Range" not in {node.op_type for node in model.graph.node}


def test_a_number_that_is_repeated_is_taken_out() -> None:
    made = helper.make_node(
        "ConstantOfShape", ["length"], ["ones"], value=numpy_helper.from_array(np.array([3], np.float32))
    )
    expanded = helper.make_node("Expand", ["half", "length"], ["halves"])
    model = model_of(made, expanded, helper.make_node("Add", ["ones", "halves"], ["y"]))
    assert taken(model) == {"ones": [3.0] * 6, "halves": [0.5] * 6}


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Range", ["zero", "two", "one"], ["places"])],  # of known extents
        [
            helper.make_node("Range", ["one", "two", "columns"], ["axes"]),
            helper.make_node("ReduceSum", ["x", "axes"], ["places"]),
        ],
        [
            helper.make_node("ConstantOfShape", ["length"], ["pads"], value=numpy_helper.from_array(np.array([1]))),
            helper.make_node("Slice", ["pads", "first", "length"], ["some"]),
            helper.make_node("Reshape", ["half", "some"], ["places"]),
        ],
        [helper.make_node("Expand", ["x", "shape"], ["places"])],
    ],
    ids=["known", "axes", "a shape", "data"],
)
def test_what_operators_need_as_constants_stays(nodes: list[Any]) -> None:
    model = model_of(*nodes, helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT))
    before = model.SerializeToString()
    found = taken(model)
    assert found == {}
    assert model.SerializeToString() == before


def test_positions_are_the_last_parameters_of_an_imported_model(tmp_path: Any) -> None:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    model = model_of(
        helper.make_node("Range", ["zero", "columns", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "numbers"], ["y"]),
    )
    path = tmp_path / "positions.onnx"
    path.write_bytes(model.SerializeToString())
    plain, kept = load(parse_ref(str(path))), load(parse_ref(str(path)), positions=True)
    assert (plain.inputs, plain.digest) == (kept.inputs, kept.digest)
    assert plain.positions == ()
    assert [each.tolist() for each in kept.positions] == [[0, 1, 2, 3, 4, 5]]
    assert len(kept.module["main"].params) == len(plain.module["main"].params) + 1
