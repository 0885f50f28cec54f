from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune_runtime.onnx_inputs import named_extents


def model(**shapes: list[str | int | None] | None) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [50_000], [0.0] * 50_000)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends, [], [weights])
    content: bytes = helper.make_model(graph).SerializeToString()
    return content


def test_names_are_found_where_they_are() -> None:
    told = named_extents(model(x=["batch", 3, None], y=[], z=None, w=["größe"]))
    assert told == {"x": ("batch", "", ""), "y": (), "w": ("größe",)}


@given(st.lists(st.one_of(st.integers(0, 1 << 40), st.text(min_size=1)), max_size=6))
def test_any_shape(shape: list[str | int]) -> None:
    assert named_extents(model(x=shape)) == {"x": tuple(each if isinstance(each, str) else "" for each in shape)}


@given(st.binary(max_size=60))
def test_other_contents_are_refused_or_have_no_inputs(content: bytes) -> None:
    with suppress(ValueError):
        named_extents(content)


def test_a_truncated_file_is_refused() -> None:
    content = model(x=["batch"])
    with pytest.raises(ValueError, match=r"longer than its message|no end"):
        named_extents(content[: len(content) // 2])
