from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, checker

from kintune.errors import ModelError
from kintune.partition.shape_choice import choose_by_shape, open_inputs
from tests.support.partitions import computed, parse

ORIGINAL = """
    m (float[N, 3] x, float[M] z) => (float[N, 3] y, float[N, 3] same) <float[3] w = {1, 2, 3}> {
        h = Mul(x, w)  s = ReduceSum<keepdims = 0>(z)  y = Add(h, s)  same = Identity(x)
    }
"""
TUNED = """
    m (float[2, 3] x, float[2] z) => (float[2, 3] y, float[2, 3] same) <float[1] h = {1000}> {
        y = Add(x, h)  same = Identity(x)
    }
"""
"""It computes something else, which tells who has run."""


def chosen(*combinations: dict[str, tuple[int, ...]]) -> ModelProto:
    tuned = TUNED if len(combinations) == 1 else TUNED.replace("float[2, 3]", "float[N, 3]").replace("[2] z", "[M] z")
    return choose_by_shape(parse(ORIGINAL), parse(tuned), combinations)


def ran(model: ModelProto, rows: int, length: int) -> str:
    inputs = {"x": np.ones((rows, 3), np.float32), "z": np.ones(length, np.float32)}
    found = computed(model, inputs)
    assert found["same"].tolist() == inputs["x"].tolist()
    expected = computed(parse(ORIGINAL), inputs)["y"]
    if np.array_equal(found["y"], expected):
        return "original"
    assert np.array_equal(found["y"], inputs["x"] + 1000)
    return "tuned"


def test_inputs_whose_shapes_are_open() -> None:
    assert open_inputs(parse(ORIGINAL)) == ("x", "z")
    assert open_inputs(parse("m (float[2] x, float[N] z, float k) => (float[2] y) { y = Relu(x) }")) == ("z",)


def test_sizes_of_minus_one_and_shapes_that_are_not_declared_are_open() -> None:
    model = parse("m (float[2, 3] x, float[2] z, float[2] k) => (float[2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model.graph.input[1].type.tensor_type.ClearField("shape")
    assert open_inputs(model) == ("x", "z")


def test_an_input_of_size_minus_one_is_looked_at() -> None:
    original = parse("m (float[2] x) => (float[N] y) { y = Relu(x) }")
    original.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model = choose_by_shape(original, parse("m (float[2] x) => (float[2] y) { y = Abs(x) }"), [{"x": (2,)}])
    assert computed(model, {"x": -np.ones(2, np.float32)})["y"].tolist() == [1, 1]
    assert computed(model, {"x": -np.ones(3, np.float32)})["y"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(), (2,), (2, 1)])
@pytest.mark.parametrize("opset", [9, 17])
def test_of_an_input_without_a_declared_shape_the_rank_is_looked_at_too(shape: tuple[int, ...], opset: int) -> None:
    models = [parse(f"m (float[2] x) => (float[2] y) {{ y = {name}(x) }}", opset=opset) for name in ("Relu", "Abs")]
    for model in models:
        for value in (model.graph.input[0], model.graph.output[0]):
            value.type.tensor_type.ClearField("shape")
    chosen = choose_by_shape(models[0], models[1], [{"x": shape}])
    for given in ((), (1,), (2,), (3,), (2, 1), (2, 2), (2, 1, 1)):
        found = computed(chosen, {"x": np.full(given, -1, np.float32)})["y"]
        assert np.array_equal(found, np.full(given, 1 if given == shape else 0, np.float32))


def test_only_the_combination_that_was_tuned_runs_tuned() -> None:
    model = chosen({"x": (2, 3), "z": (4,)})
    checker.check_model(model, full_check=True)
    assert [ran(model, rows, length) for rows, length in ((2, 4), (2, 5), (1, 4), (3, 2))] == [
        "tuned", "original", "original", "original",
    ]  # fmt: skip


def test_each_of_several_combinations_runs_tuned() -> None:
    model = chosen({"x": (2, 3), "z": (4,)}, {"x": (5, 3), "z": (6,)}, {"x": (7, 3), "z": (8,)})
    checker.check_model(model, full_check=True)
    assert [ran(model, *shape) for shape in ((2, 4), (5, 6), (7, 8), (2, 6), (5, 4))] == [
        "tuned", "tuned", "tuned", "original", "original",
    ]  # fmt: skip


def test_inputs_whose_shapes_are_fixed_are_not_asked_for() -> None:
    model = chosen({"x": (2, 3)})
    assert ran(model, 2, 99) == "tuned"
    assert ran(model, 3, 99) == "original"


def test_an_output_that_is_used_inside_keeps_its_readers() -> None:
    original = parse("m (float[N] x) => (float[N] y, float[N] z) { y = Relu(x)  z = Neg(y) }")
    tuned = parse("m (float[2] x) => (float[2] y, float[2] z) { y = Abs(x)  z = Neg(y) }")
    model = choose_by_shape(original, tuned, [{"x": (2,)}])
    checker.check_model(model, full_check=True)
    assert computed(model, {"x": np.array([-1, 2], np.float32)})["z"].tolist() == [-1, -2]
    assert computed(model, {"x": np.array([-1, 2, 3], np.float32)})["z"].tolist() == [0, -2, -3]


def test_an_output_that_a_body_reads_is_renamed_in_it() -> None:
    text = """m (float[%s] x, bool c) => (float[%s] y, float[%s] z) {
        y = Relu(x)
        z = If(c) <
            then_branch = a () => (float[%s] p) { p = Neg(y) },
            else_branch = b () => (float[%s] q) { q = Abs(y) }
        >
    }"""
    model = choose_by_shape(parse(text.replace("%s", "N")), parse(text.replace("%s", "2")), [{"x": (2,)}])
    checker.check_model(model, full_check=True)
    for count in (2, 3):
        x = np.arange(count, dtype=np.float32)
        assert computed(model, {"x": x, "c": np.array(True)})["z"].tolist() == (-x).tolist()


def test_an_output_that_is_a_weight() -> None:
    original = parse("m (float[N] x) => (float[1] w, float[N] y) <float[1] w = {7}> { y = Relu(x) }")
    tuned = parse("m (float[2] x) => (float[1] w, float[2] y) <float[1] w = {7}> { y = Relu(x) }")
    model = choose_by_shape(original, tuned, [{"x": (2,)}])
    for count in (2, 3):
        assert computed(model, {"x": np.ones(count, np.float32)})["w"].tolist() == [7]


def test_graphs_of_different_operator_sets_are_refused() -> None:
    with pytest.raises(ModelError, match="operator set 13, the model of 17"):
        choose_by_shape(parse(ORIGINAL), parse(TUNED, opset=13), [{"x": (2, 3)}])
