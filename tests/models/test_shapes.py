from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.errors import ModelError, ShapeError
from kintune.models.shapes import Dimension, bind, contradicting, resolve
from tests.support.partitions import parse

dimensions = st.one_of(st.integers(1, 9), st.sampled_from(["", "n", "m"]))


@given(
    declared=st.dictionaries(st.sampled_from("abc"), st.lists(dimensions, max_size=4).map(tuple)),
    sizes=st.fixed_dictionaries({"n": st.integers(1, 9), "m": st.integers(1, 9)}),
    unnamed=st.integers(1, 9),
)
def test_full_shapes_that_agree_with_the_model_fix_it(
    declared: dict[str, tuple[Dimension, ...]], sizes: dict[str, int], unnamed: int
) -> None:
    full = {
        name: tuple(dim if isinstance(dim, int) else sizes.get(dim, unnamed) for dim in dims)
        for name, dims in declared.items()
    }
    assert resolve("m", declared, full) == full
    fixed = {name: shape for name, shape in full.items() if all(isinstance(dim, int) for dim in declared[name])}
    if len(fixed) == len(declared):
        assert resolve("m", declared, {}) == full


def test_a_named_dimension_is_bound_wherever_it_occurs() -> None:
    declared = {"ids": ("batch", "sequence"), "mask": ("batch", "sequence"), "scale": (4,)}
    expected = {"ids": (2, 8), "mask": (2, 8), "scale": (4,)}
    assert resolve("m", declared, {"ids": (2, 8)}) == expected
    with pytest.raises(ShapeError, match="dimension batch was already bound to 2"):
        resolve("m", declared, {"ids": (2, 8), "mask": (3, 8)})


TWO_INPUTS = "m (float[n, m] x, float[n, m] v) => (float[n, k] y)"


def test_a_name_may_have_two_sizes_where_the_graph_takes_them() -> None:
    """Some exporters give one name to dimensions that have nothing to do with each other."""
    model = parse(f"{TWO_INPUTS} {{ a = MatMul(x, w)  y = Add(a, v) }}")
    weights = {"w": np.zeros((5, 7), np.float32)}
    shapes = {"x": (2, 5), "v": (2, 7)}
    assert bind("m", model, shapes, weights) == shapes
    assert [dim.dim_value for dim in model.graph.input[1].type.tensor_type.shape.dim] == [2, 7]
    assert contradicting("m", parse(f"{TWO_INPUTS} {{ y = Add(x, v) }}"), shapes) is None
    for wrong in ({"x": (2, 5), "v": (2, 6)}, {"x": (2, 4), "v": (2, 7)}):
        model = parse(f"{TWO_INPUTS} {{ a = MatMul(x, w)  y = Add(a, v) }}")
        with pytest.raises(ShapeError, match="dimension m was already bound to"):
            bind("m", model, wrong, weights)


def test_an_open_dimension_is_named_with_the_flag_to_add() -> None:
    with pytest.raises(ShapeError) as caught:
        resolve("model.onnx", {"image": ("batch", 3, "", 224)}, {})
    assert str(caught.value) == (
        "model.onnx: input image is batchx3x?x224, of unknown size in dimension 0 (batch), 2; "
        "add --shape image=1x3x224x224 with the sizes you need"
    )


def test_of_several_open_inputs_all_flags_are_named_that_are_needed() -> None:
    declared: dict[str, tuple[int | str, ...] | None] = {
        "atoms": ("atoms",), "role": ("atoms",), "given": ("n",), "bond": (2, "bonds"), "far": ("bonds",), "any": None,
        "of_n": ("n", ""),
    }  # fmt: skip
    with pytest.raises(ShapeError) as caught:
        resolve("m", declared, {"given": (5,)})
    assert str(caught.value) == (
        "m: input atoms is atoms, of unknown size in dimension 0 (atoms); "
        "add --shape atoms=1 --shape bond=2x64 --shape any=DIMxDIMx... --shape of_n=5x64 with the sizes you need"
    )
    with pytest.raises(ShapeError, match=r"m: input any has no shape in the file; add --shape any=DIMxDIMx\.\.\.$"):
        resolve("m", {"any": None}, {})


@pytest.mark.parametrize(
    ("declared", "example"),
    [
        (("n", 3, "h", "w"), "1x3x224x224"),
        (("n", "h", "w", 3), "1x64x64x3"),
        (("batch", "sequence"), "1x64"),
        (("?",), "1"),
    ],
)
def test_a_shape_to_begin_with_is_that_of_an_image_or_of_a_sequence(
    declared: tuple[int | str, ...], example: str
) -> None:
    with pytest.raises(ShapeError, match=f"add --shape x={example} with"):
        resolve("m", {"x": declared}, {})


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"y": (1,)}, "--shape names 'y', but the model's inputs are x"),
        ({"x": (1, 3)}, "--shape x=1x3 contradicts the model, where x is nx3x224"),
        ({"x": (1, 4, 224)}, "--shape x=1x4x224 contradicts the model, where x is nx3x224"),
        ({"x": (2**31, 3, 224)}, "is too large"),
    ],
)
def test_shapes_that_contradict_the_model(shapes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(ShapeError) as caught:
        resolve("m", {"x": ("n", 3, 224)}, shapes)
    assert said in str(caught.value)


def test_an_input_of_more_dimensions_than_the_runtime_takes_is_refused() -> None:
    assert resolve("m", {"x": (1,) * 32}, {}) == {"x": (1,) * 32}
    with pytest.raises(ShapeError, match="input x has 33 dimensions; it may have 32"):
        resolve("m", {"x": (1,) * 33}, {})


def test_question_marks_and_missing_names_are_dimensions_of_their_own(samples: Any) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = samples.make_model(
        [node], [("x", TensorProto.FLOAT, ["?", None, "?", -1])], [("y", TensorProto.FLOAT, None)]
    )
    assert bind("m", model, {"x": (2, 3, 5, 7)}) == {"x": (2, 3, 5, 7)}
    again = samples.make_model([node], [("x", TensorProto.FLOAT, ["?", 3])], [("y", TensorProto.FLOAT, None)])
    with pytest.raises(ShapeError, match=r"input x is \?x3, of unknown size in dimension 0; add --shape x=1x3 "):
        bind("m", again, {})


def test_sizes_of_nothing_and_scalars_are_sizes(samples: Any) -> None:
    nodes = [helper.make_node("Relu", [name], [f"{name}_y"]) for name in "xsn"]
    inputs = [("x", TensorProto.FLOAT, [0, 3]), ("s", TensorProto.FLOAT, []), ("n", TensorProto.FLOAT, ["n", 2])]
    outputs = [(f"{name}_y", TensorProto.FLOAT, None) for name in "xsn"]
    shapes = {"n": (0, 2), "s": ()}
    model = samples.make_model(nodes, inputs, outputs)
    assert bind("m", model, shapes) == {"x": (0, 3), "s": (), "n": (0, 2)}
    assert bind("m", samples.make_model(nodes, inputs, outputs), {**shapes, "x": (4, 3)})["x"] == (4, 3)


def test_binding_writes_inputs_and_forgets_stale_shapes(samples: Any) -> None:
    model = samples.linear_model(rows="n")
    model.graph.value_info.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["n", 512]))
    assert bind("m", model, {"x": (5, 64)}) == {"x": (5, 64)}
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [5, 64]
    assert not model.graph.value_info
    assert not model.graph.output[0].type.tensor_type.HasField("shape")


@pytest.mark.parametrize("rows", [None, -1])
def test_nameless_and_negative_dimensions_are_open(samples: Any, rows: int | None) -> None:
    model = samples.linear_model(rows=rows)
    with pytest.raises(ShapeError, match="add --shape x=1x64"):
        bind("m", model, {})
    assert bind("m", model, {"x": (3, 64)}) == {"x": (3, 64)}


def test_an_input_without_any_shape_must_be_bound(samples: Any) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    model = samples.make_model([relu], [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
    with pytest.raises(ShapeError, match="input x has no shape in the file; add --shape x=DIM"):
        bind("m", model, {})
    assert bind("m", model, {"x": (2, 3)}) == {"x": (2, 3)}


@pytest.mark.parametrize("kind", ["COMPLEX64", "FLOAT8E4M3FN", "INT4"])
def test_element_types_that_cannot_be_handled_are_refused_by_name(samples: Any, kind: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    port = [TensorProto.DataType.Value(kind), [2]]
    model = samples.make_model([node], [("x", *port)], [("y", *port)])
    with pytest.raises(ModelError, match=f"input x holds elements of type {kind}"):
        bind("m", model, {})


def test_inputs_that_are_no_tensors_are_refused(samples: Any) -> None:
    model = samples.linear_model()
    model.graph.input.append(helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, [2]))
    with pytest.raises(ModelError, match="input many is not a tensor"):
        bind("m", model, {})
