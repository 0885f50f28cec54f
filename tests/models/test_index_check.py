from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.errors import ModelError
from kintune.models.index_check import check_constant_indices
from kintune.models.onnx import read

X, Y = ("x", TensorProto.FLOAT, [3, 5]), ("y", TensorProto.FLOAT, None)


def reads(samples: Any, nodes: list[Any], **weights: Any) -> None:
    arrays = {name: np.asarray(values) for name, values in weights.items()}
    read(samples.write(samples.make_model(nodes, [X], [Y], arrays)), {})


@pytest.mark.parametrize(
    ("operator", "indices", "attributes", "said"),
    [
        ("Gather", [0, 7], {"axis": 1}, "index 7 is outside of axis 1, which has 5 elements"),
        ("Gather", 3, {}, "index 3 is outside of axis 0, which has 3 elements"),
        ("Gather", [-6], {"axis": -1}, "index -6 is outside of axis 1, which has 5 elements"),
        ("GatherElements", [[0, 5]], {"axis": 1}, "index 5 is outside of axis 1, which has 5 elements"),
        ("GatherND", [[2, 5]], {}, "index 5 is outside of axis 1, which has 5 elements"),
        ("GatherND", [[0], [4], [5]], {"batch_dims": 1}, "index 5 is outside of axis 1, which has 5 elements"),
    ],
)
def test_an_index_out_of_range_is_named(
    samples: Any, operator: str, indices: Any, attributes: dict[str, int], said: str
) -> None:
    node = helper.make_node(operator, ["x", "i"], ["y"], name="lookup", **attributes)
    with pytest.raises(ModelError, match=f"model.onnx: node {operator} 'lookup': {said}"):
        reads(samples, [node], i=indices)
    late = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(operator, ["r", "i"], ["y"], **attributes)]
    with pytest.raises(ModelError, match=f"node {operator} of 'y': {said}"):
        reads(samples, late, i=indices)


@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND"])
def test_what_is_written_is_checked_too(samples: Any, operator: str) -> None:
    indices, updates = ([[3, 0]], [[1.0, 2.0]]) if operator == "ScatterElements" else ([[3, 0]], [1.0])
    node = helper.make_node(operator, ["x", "i", "u"], ["y"])
    with pytest.raises(ModelError, match="index 3 is outside of axis 0, which has 3 elements"):
        reads(samples, [node], i=indices, u=np.array(updates, np.float32))


@given(st.lists(st.integers(-5, 4), max_size=6))
def test_what_is_inside_is_taken(indices: list[int]) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(*X)], [helper.make_tensor_value_info(*Y)],
        [numpy_helper.from_array(np.array(indices, np.int64), "i")],
    )  # fmt: skip
    check_constant_indices("m", helper.make_model(graph), {})


def test_large_indices_are_seen_and_those_of_branches_are_not(samples: Any) -> None:
    """A branch may never run."""

    def branch(name: str, indices: str) -> Any:
        node = helper.make_node("Gather", ["x", indices], [name], name=name)
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch("inner", "i"), else_branch=branch("other", "j")),
    ]
    reads(samples, nodes, i=[0, 1], j=[0, 9])
    large = np.zeros(20_000, np.int64)
    large[-1] = 3
    with pytest.raises(ModelError, match="index 3 is outside of axis 0"):
        reads(samples, [helper.make_node("Gather", ["x", "i"], ["y"])], i=large)
