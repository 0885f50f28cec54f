"""Results for any shapes in ranges, from a file to what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.core.execution_plan import OpenExtent
from kintune.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tvm

_DIMENSIONS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 100), st.integers(1, 8)), min_size=1, max_size=3
).map(
    lambda found: tuple(
        OpenExtent(f"d{at}", 0, at, least, least + count * step, step) for at, (least, count, step) in enumerate(found)
    )
)


@given(_DIMENSIONS)
def test_points_and_drawn_extents_lie_within_their_ranges(dimensions: tuple[OpenExtent, ...]) -> None:
    from kintune.tuning.job.open_network import drawn_extents, first_points

    for points in (first_points(dimensions), drawn_extents(dimensions)):
        assert points
        assert len({tuple(point.items()) for point in points}) == len(points)
        assert all(each.extent(point[each.name]) in each.extents for point in points for each in dimensions)
    assert {each.name: each.steps(each.greatest) for each in dimensions} not in first_points(dimensions)
    inside = [each for each in dimensions if len(each.extents) > 2]
    assert not any(
        each.extent(point[each.name]) in (each.least, each.greatest)
        for point in first_points(dimensions)
        for each in inside
    )
    assert {each.name: each.steps(each.least) for each in dimensions} in drawn_extents(dimensions)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embeds ids, masks them, and gives the mean of two layers over the length; ids and mask have named axes."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 4, name)
        for name, shape in {"table": (50, 32), "first": (32, 64), "second": (64, 32)}.items()
    ]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("MatMul", ["words", "first"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("MatMul", ["positive", "second"], ["narrow"]),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["narrow", "column"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    weights.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    ends = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "n"]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["b", "n"]),
    ]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "n", 32])]
    path = tmp_path_factory.mktemp("open") / "words.onnx"
    graph = helper.make_graph(nodes, "words", ends, out, weights)
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_result_takes_any_shape_of_a_range(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    import kintune as kt

    loaded = kt.load(model, shapes={"ids": (range(1, 5), range(1, 97))})
    records = str(tmp_path / "records.json")
    result = loaded.compile(output=str(tmp_path / "words.kt"), records=records, progress=False)
    assert "inputs of shape ids=1x1, mask=1x1" in result.report.extreme_inputs
    assert len(result.report.extreme_inputs) > 5
    executable, session = result.open(), onnxruntime.InferenceSession(str(model))
    assert executable.inputs[0].ranges == ((1, 4, 1), (1, 96, 1))
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (4, 96), (3, 17), (2, 96), (4, 1)):
        given = {"ids": rng.integers(0, 50, shape), "mask": rng.integers(0, 2, shape).astype(np.float32)}
        np.testing.assert_allclose(executable.run(given)["y"], session.run(None, given)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="97 elements along axis 1"):
        executable.run({"ids": np.zeros((1, 97), np.int64), "mask": np.zeros((1, 97), np.float32)})


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another network for more than thirty rows."""

    def branch(operators: list[str], name: str) -> Any:
        names = ["x", *(f"{name}{at}" for at in range(len(operators)))]
        nodes = [helper.make_node(op, [names[at]], [names[at + 1]]) for at, op in enumerate(operators)]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Greater", ["length", "thirty"], ["long"]),
        helper.make_node(
            "If", ["long"], ["y"], then_branch=branch(["Relu"], "a"), else_branch=branch(["Sin", "Softmax"], "b")
        ),
    ]
    numbers = [numpy_helper.from_array(np.array(value, np.int64), key) for key, value in (("one", 1), ("thirty", 30))]
    ends = [helper.make_tensor_value_info(key, TensorProto.FLOAT, [1, "n", 8]) for key in "xy"]
    graph = helper.make_graph(nodes, "branches", ends[:1], ends[1:], numbers)
    path = tmp_path_factory.mktemp("branches") / "branches.onnx"
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_network_of_another_form_at_some_extents_is_refused_as_input(branches: Path, tmp_path: Path) -> None:
    import kintune as kt

    loaded = kt.load(branches, shapes={"x": (1, range(1, 101), 8)})
    with pytest.raises(InputError, match="not the same for all extents: kernels relu or fused_tir_sin_softmax;"):
        loaded.compile(output=str(tmp_path / "b.kt"), records=str(tmp_path / "records.json"), progress=False)
    assert not (tmp_path / "b.kt").exists()


def test_another_shape_at_the_least_extents_is_refused_as_input(tmp_path: Path) -> None:
    """No point lies below the end of the slice."""
    import kintune as kt

    ends = [helper.make_tensor_value_info(key, TensorProto.FLOAT, ["n", 8] if key == "x" else None) for key in "xy"]
    numbers = [numpy_helper.from_array(np.array([value], np.int64), key) for key, value in (("start", 0), ("end", 5))]
    nodes = [helper.make_node("Slice", ["x", "start", "end"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    proto = helper.make_model(helper.make_graph(nodes, "slice", ends[:1], ends[1:], numbers), ir_version=10)
    path = tmp_path / "slice.onnx"
    path.write_bytes(proto.SerializeToString())
    options: dict[str, Any] = {"records": str(tmp_path / "records.json"), "progress": False}
    with pytest.raises(InputError, match=r"y has the shape \[1, 8\] for n=1, not \[5, 8\]; begin the ranges later"):
        kt.load(path, shapes={"x": (range(1, 101), 8)}).compile(output=str(tmp_path / "s.kt"), **options)
    kt.load(path, shapes={"x": (range(5, 101), 8)}).compile(output=str(tmp_path / "s.kt"), **options)


def test_shapes_that_nobody_names_become_ranges(model: Path, tmp_path: Path) -> None:
    import kintune as kt

    records = str(tmp_path / "records.json")
    result = kt.load(model).compile(output=str(tmp_path / "words.kt"), records=records, progress=False)
    (said,) = [note for note in result.report.notes if "leaves shapes open" in note]
    assert "chose ids={1..4}x{1..512}; --shape names others" in said
    assert result.open().inputs[0].ranges == ((1, 4, 1), (1, 512, 1))


def test_where_no_range_can_be_chosen_other_shapes_run_in_onnxruntime(branches: Path, tmp_path: Path) -> None:
    import onnxruntime

    import kintune as kt

    records = str(tmp_path / "records.json")
    result = kt.load(branches).compile(output=str(tmp_path / "b.kt"), records=records, progress=False)
    said = "; ".join(result.report.notes)
    assert "chose x=1x64x8; --shape names others; onnxruntime runs inputs of any other shape" in said
    assert "not for x=1x{1..512}x8: a result for these was wrong" in said
    executable, session = result.open(), onnxruntime.InferenceSession(str(branches))
    for length in (64, 5, 900):
        x = np.random.default_rng(length).standard_normal((1, length, 8), np.float32)
        np.testing.assert_allclose(executable.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_a_detector_takes_images_of_any_size(tmp_path: Path) -> None:
    """Its grids follow from the image: for one size they are constants, of two resolutions in one tensor."""
    import onnxruntime

    import kintune as kt

    rng = np.random.default_rng(0)
    node, nodes, grids, maps = helper.make_node, list[Any](), [], []
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 5, name)
        for name, shape in {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3)}.items()
    ]
    for name, value in {"zero": 0, "one": 1, "a2": 2, "a3": 3, "flat": [0, 16, -1], "row": [1, 1, -1]}.items():
        weights.append(numpy_helper.from_array(np.array(value, np.int64), name))
    weights.append(numpy_helper.from_array(np.float32(0.5), "half"))
    for level, before in enumerate(("image", "f0")):
        f = f"f{level}"
        nodes += [
            node("Conv", [before, f"w{level}"], [f], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Shape", [f], [f"shape{level}"]),
            node("Gather", [f"shape{level}", "a2"], [f"h{level}"]),
            node("Gather", [f"shape{level}", "a3"], [f"v{level}"]),
            node("Mul", [f"h{level}", f"v{level}"], [f"n{level}"]),
            node("Range", ["zero", f"n{level}", "one"], [f"places{level}"]),
            node("Cast", [f"places{level}"], [f"numbers{level}"], to=TensorProto.FLOAT),
            node("Add", [f"numbers{level}", "half"], [f"grid{level}"]),
            node("Reshape", [f"grid{level}", "row"], [f"grids{level}"]),
            node("Reshape", [f, "flat"], [f"map{level}"]),
        ]
        grids.append(f"grids{level}")
        maps.append(f"map{level}")
    nodes += [
        node("Concat", grids, ["grid"], axis=2),
        node("Concat", maps, ["map"], axis=2),
        node("Mul", ["map", "grid"], ["boxes"]),
    ]
    ends = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, "height", "width"])]
    out = [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, None)]
    path = tmp_path / "detector.onnx"
    graph = helper.make_graph(nodes, "detector", ends, out, weights)
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(proto.SerializeToString())
    records = str(tmp_path / "records.json")
    result = kt.load(path).compile(output=str(tmp_path / "detector.kt"), records=records, progress=False)
    executable, session = result.open(), onnxruntime.InferenceSession(str(path))
    assert executable.inputs[0].ranges == ((1, 1, 0), (3, 3, 0), (32, 640, 32), (32, 640, 32))
    for shape in ((1, 3, 32, 32), (1, 3, 96, 64), (1, 3, 256, 416)):
        x = rng.standard_normal(shape, np.float32)
        wanted = session.run(None, {"image": x})[0]
        np.testing.assert_allclose(executable.run(x)["boxes"], wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
