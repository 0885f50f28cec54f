"""Networks for any extents, compared with onnxruntime at drawn ones, also at those that no pass has seen."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.core.execution_plan import OpenExtent
from kintune.errors import BuildError, ModelError
from kintune.hardware.cpu import host_extensions
from kintune.search.processor import Processor
from kintune_runtime import InputError
from tests.support.examples import compiled_examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.tvm

ROWS, BATCH = OpenExtent("n", 0, 1, 1, 96), OpenExtent("b", 0, 0, 1, 5)
POINTS = ({"n": 24, "b": 2}, {"n": 41, "b": 3}, {"n": 61, "b": 4}, {"n": 33, "b": 5}, {"n": 96, "b": 5})


def _written(
    folder: Path,
    name: str,
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    more: Sequence[Any] = (),
    opset: int = 13,
) -> Path:
    rng = np.random.default_rng(0)
    shapes = {"first": (32, 64), "bias": (64,), "second": (64, 32), "places": (1, 96, 32), "distances": (1, 4, 96, 96)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 4, key) for key, shape in shapes.items()
    ]
    weights += [
        numpy_helper.from_array(np.array(value, np.int64), key)
        for key, value in {
            "zero": [0],
            "zeros": [0, 0],
            "one": [1],
            "inner": [2, 3],
            "axis": [1],
            "head": [0, 0, 4, 8],
            "flat": [0, 0, 32],
            "thirty": [30],
        }.items()
    ]
    ends = [helper.make_tensor_value_info(key, TensorProto.FLOAT, list(shape)) for key, shape in inputs.items()]
    out = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, name, ends, out, [*weights, *more])
    path = folder / f"{name}.onnx"
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    path.write_bytes(model.SerializeToString())
    return path


def _block(folder: Path) -> Path:
    """A block of a transformer: embedded places as long as the input, attention of four heads, a network of rows."""
    node = helper.make_node
    return _written(
        folder,
        "block",
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "one"], ["length"], axis=0),
            node("Slice", ["places", "zero", "length", "axis"], ["embedded"]),
            node("Concat", ["length", "length"], ["lengths"], axis=0),
            node("Add", ["x", "embedded"], ["h"]),
            *(node("Reshape", ["h", "head"], [f"r{each}"]) for each in "qkv"),
            *(node("Transpose", [f"r{each}"], [each], perm=[0, 2, 1, 3]) for each in "qv"),
            node("Transpose", ["rk"], ["k"], perm=[0, 2, 3, 1]),
            node("MatMul", ["q", "k"], ["unplaced"]),
            node("Slice", ["distances", "zeros", "lengths", "inner"], ["placed"]),
            node("Add", ["unplaced", "placed"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1),
            node("MatMul", ["shares", "v"], ["mixed"]),
            node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
            node("Reshape", ["turned", "flat"], ["joined"]),
            node("Add", ["h", "joined"], ["g"]),
            node("MatMul", ["g", "first"], ["wide"]),
            node("Add", ["wide", "bias"], ["biased"]),
            node("Relu", ["biased"], ["positive"]),
            node("MatMul", ["positive", "second"], ["narrow"]),
            node("Concat", ["g", "narrow"], ["both"], axis=1),
            node("ReduceMean", ["both"], ["mean"], axes=[1], keepdims=1),
            node("Sub", ["both", "mean"], ["y"]),
        ],
        {"x": ["b", "n", 32]},
    )


def _compiled(
    path: Path, points: Sequence[Mapping[str, int]], dimensions: Sequence[OpenExtent], shape: str = ""
) -> Any:
    """The network for any extents, and its plan; `shape` is spelled with the extents of a point for {}."""
    from kintune.compiler.graph.executable import describe_build
    from kintune.compiler.graph.open_plan import LoweredPoint, MorePoints, assemble_open, is_open, modules_at
    from kintune.core.model import Combination
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.executable import CompiledPlan, Executable
    from kintune.runtime.tensors import block_of
    from kintune_lab.fuzz.compiling import Compiler

    compiler, lowered = Compiler(), list[Any]()
    pending = list(points)
    while True:
        for point in pending:
            own = shape.format(*point.values()) or f"x={point.get('b', 2)}x{point['n']}x32"
            model = load(parse_ref(str(path), [own]))
            shaped = Combination(model.inputs, model.outputs, model.checks)
            lowered.insert(-1 if lowered else 0, LoweredPoint(point, compiler.lower(model), shaped))
        lowered.sort(key=lambda each: sum(each.extents.values()))
        chosen = {}
        try:
            at = modules_at(lowered)
            for workload, ranked in compiler.ranked_programs(lowered[-1].lowered, 8).items():
                found = [each for each in ranked if is_open(*each, at.get(workload, ()))]
                if found:
                    chosen[workload] = found[0]
            made = assemble_open(lowered, dimensions, chosen, compiler._target)
            break
        except MorePoints as more:
            pending = list(more.points)
    sketches = [sketch for sketch, _ in chosen.values()]
    own = {(each.input, each.axis): (each.least, each.greatest, each.step) for each in dimensions}
    inputs = [
        msgspec.structs.replace(
            tensor, ranges=tuple(own.get((at, axis), (size, size, 0)) for axis, size in enumerate(tensor.shape))
        )
        for at, tensor in enumerate(made.plan.inputs)
    ]
    about = describe_build(
        model_name="m", model_digest="0" * 32, target=compiler._text, threads=1, inputs=inputs,
        outputs=made.plan.outputs, checks=made.plan.checks, chosen={}, sketches=sketches,
    )  # fmt: skip
    plan = CompiledPlan(made.plan, made.library, map(block_of, made.weights), made.calls, 0, made.bounds)
    return Executable.create_from_plans([plan], about), made


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    import onnxruntime

    path = _block(tmp_path_factory.mktemp("block"))
    executable, made = _compiled(path, POINTS, (ROWS, BATCH))
    return executable, made, onnxruntime.InferenceSession(str(path))


@compiled_examples(40)
@given(extents=st.tuples(st.integers(1, 5), st.integers(1, 96)))
def test_a_network_takes_any_extents(block: tuple[Any, Any, Any], extents: tuple[int, int]) -> None:
    executable, _, session = block
    x = np.random.default_rng(extents).standard_normal((*extents, 32), np.float32)
    (wanted,) = session.run(None, {"x": x})
    np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_programs_of_our_own_are_in_it(block: tuple[Any, Any, Any]) -> None:
    assert {each.program.split(".")[0] for each in block[1].calls} >= {"vectors", "attention"}


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_any_length_is_proven_in_bounds(tmp_path: Path, causal: int) -> None:
    """Queries that fill no vector, keys that fill no block, and more of both than one block has."""
    import onnxruntime

    node = helper.make_node
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": causal}
    nodes = [node("Relu", ["x"], ["h"]), node("Attention", ["h", "h", "x"], ["y"], **attributes)]
    path = _written(tmp_path, "attention", nodes, {"x": ["b", "n", 32]}, opset=23)
    dimensions = OpenExtent("n", 0, 1, 1, 200), BATCH
    points = [{"n": n, "b": b} for n, b in ((24, 2), (41, 3), (61, 4), (93, 5), (200, 5))]
    executable, made = _compiled(path, points, dimensions)
    assert "attention" in {each.program.split(".")[0] for each in made.calls}
    assert made.bounds is not None
    assert not made.bounds.unproven
    session = onnxruntime.InferenceSession(str(path))
    for n, b in ((1, 1), (2, 5), (7, 2), (8, 1), (9, 3), (64, 2), (65, 1), (199, 4), (200, 5)):
        x = np.random.default_rng(n).standard_normal((b, n, 32), np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-5)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "padded": {"pads": [1, 1, 1, 1]},
    "images": {"pads": [1, 1, 1, 1], "images": 2},
    "strided": {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    "dilated": {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
    "inside": {},
    "grouped": {"pads": [1, 1, 1, 1], "group": 2},
    "points": {"kernel": 1, "strides": [2, 2]},
    "line": {"pads": [1, 1], "kernel": 3, "axes": 1},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_any_image_are_proven_in_bounds(tmp_path: Path, name: str) -> None:
    """Images that are shorter than a tile, and such that fill no tile."""
    import onnxruntime

    attributes = dict(CONVOLUTIONS[name])
    taps, axes, images = attributes.pop("kernel", 3), attributes.pop("axes", 2), attributes.pop("images", 1)
    shape = (32, 16 // attributes.get("group", 1), *[taps] * axes)
    weight = np.random.default_rng(0).standard_normal(shape, np.float32) / 12
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], **attributes), helper.make_node("Relu", ["c"], ["y"])]
    extents = ["n", "m"][-axes:]
    path = _written(tmp_path, name, nodes, {"x": [images, 16, *extents]}, [numpy_helper.from_array(weight, "w")])
    far = 90 if axes == 2 else 700
    dimensions = [OpenExtent(extent, 0, 2 + at, 4, far) for at, extent in enumerate(extents)]
    drawn = ((31, 47), (53, 26), (22, 61), (70, 35), (far, far))
    points = [dict(zip(extents, point, strict=False)) for point in drawn]
    executable, made = _compiled(path, points, dimensions, f"x={images}x16x{'x'.join(['{}'] * axes)}")
    assert made.bounds is not None
    programs = {each.program.split(".")[0] for each in made.calls if "conv" in each.kernel}
    assert programs <= {"vectors", "winograd_blocked"}
    assert not [kernel for kernel in made.bounds.unproven if "conv" in kernel]
    session = onnxruntime.InferenceSession(str(path))
    for place in ((4, 4), (5, 7), (4, 90), (64, 12), (89, 90)):
        x = np.random.default_rng(place).standard_normal((images, 16, *place[-axes:]), np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-4)


windows = st.fixed_dictionaries(
    {
        "kernel": st.integers(1, 5),
        "strides": st.integers(1, 3),
        "dilations": st.integers(1, 2),
        "pads": st.integers(0, 2),
        "group": st.sampled_from((1, 1, 2, 32)),
    }
)


@compiled_examples(8)
@given(window=windows)
def test_drawn_convolutions_are_those_of_known_extents(
    tmp_path_factory: pytest.TempPathFactory, window: dict[str, int]
) -> None:
    import onnxruntime

    attributes, (taps, group) = dict(window), (window["kernel"], window["group"])
    del attributes["kernel"]
    spread = {name: [attributes[name]] * 2 for name in ("strides", "dilations")} | {"pads": [window["pads"]] * 4}
    weight = np.random.default_rng(0).standard_normal((32, 32 // group, taps, taps), np.float32) / 12
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **(attributes | spread))]
    folder = tmp_path_factory.mktemp("drawn")
    path = _written(folder, "drawn", nodes, {"x": [1, 32, "n", "m"]}, [numpy_helper.from_array(weight, "w")])
    least = max(2, (taps - 1) * window["dilations"] + 1)
    dimensions = [OpenExtent("n", 0, 2, least, 60), OpenExtent("m", 0, 3, least, 60)]
    points = [{"n": n, "m": m} for n, m in ((27, 38), (45, 23), (31, 51), (52, 35), (60, 60))]
    executable, made = _compiled(path, points, dimensions, "x=1x32x{}x{}")
    assert made.bounds is not None
    written = {each.kernel for each in made.calls if each.program}
    assert not written & set(made.bounds.unproven)
    session = onnxruntime.InferenceSession(str(path))
    for n, m in itertools.product((least, least + 1, 17, 59), (least, 14, 60)):
        x = np.random.default_rng((n, m)).standard_normal((1, 32, n, m), np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_extents_outside_of_the_range_are_refused(block: tuple[Any, Any, Any]) -> None:
    executable, *_ = block
    with pytest.raises(InputError, match=r"97 elements along axis 1 \(n\); 1 to 96 are possible"):
        executable.run(np.ones((1, 97, 32), np.float32))
    assert executable.inputs[0].ranges == ((1, 5, 1), (1, 96, 1), (32, 32, 0))


def test_weights_are_those_of_the_greatest_extents_alone(block: tuple[Any, Any, Any]) -> None:
    _, made, _ = block
    assert len([each for each in made.weights if each.numpy().size == 96 * 32]) == 1


def test_recurrent_layers_take_any_number_of_steps(tmp_path: Path) -> None:
    """Their kernels are text for TVM's parser, whose extents have 32 bits."""
    import onnxruntime

    rng = np.random.default_rng(0)
    shapes = {"w": (1, 64, 32), "r": (1, 64, 16), "b": (1, 128)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 4, key) for key, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["all", "last"], hidden_size=16),
        helper.make_node("Squeeze", ["all", "axis"], ["squeezed"]),
        helper.make_node("Tanh", ["squeezed"], ["y"]),
    ]
    path = _written(tmp_path, "lstm", nodes, {"x": [1, "n", 32]}, weights)
    executable, _ = _compiled(path, [{"n": n, "b": 1} for n in (24, 41, 64, 96)], (ROWS,))
    session = onnxruntime.InferenceSession(str(path))
    for n in (1, 2, 17, 96):
        x = rng.standard_normal((1, n, 32), np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_norms_of_any_number_of_elements(tmp_path: Path) -> None:
    """Their kernels multiply by the share of one element, which is a constant of each of them."""
    import onnxruntime

    scales = [numpy_helper.from_array(np.float32([1.5] * 2), key) for key in ("scale", "shift")]
    nodes = [helper.make_node("InstanceNormalization", ["x", "scale", "shift"], ["y"])]
    path = _written(tmp_path, "norm", nodes, {"x": [1, 2, "n", 7]}, scales)
    points = [{"n": n} for n in (10, 17, 23, 40)]
    executable, _ = _compiled(path, points, [OpenExtent("n", 0, 2, 2, 40)], "x=1x2x{}x7")
    session = onnxruntime.InferenceSession(str(path))
    for n in (2, 3, 29, 40):
        x = np.random.default_rng(n).standard_normal((1, 2, n, 7), np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable.run(x)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_regions_of_any_image_are_averaged(tmp_path: Path) -> None:
    """A sum over known extents reads of a tensor whose extents are open."""
    import onnxruntime

    regions = [
        numpy_helper.from_array(np.float32([[0, 0, 3, 4], [1, 2, 6, 9]]), "regions"),
        numpy_helper.from_array(np.zeros(2, np.int64), "images"),
    ]
    attributes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": "avg"}
    nodes = [helper.make_node("RoiAlign", ["x", "regions", "images"], ["y"], **attributes)]
    path = _written(tmp_path, "regions", nodes, {"x": [1, 3, "n", 4]}, regions, opset=16)
    points = [{"n": n} for n in (6, 9, 14, 20)]
    executable, _ = _compiled(path, points, [OpenExtent("n", 0, 2, 2, 20)], "x=1x3x{}x4")
    session = onnxruntime.InferenceSession(str(path))
    for n in (2, 5, 20):
        x = np.random.default_rng(n).standard_normal((1, 3, n, 4), np.float32)
        np.testing.assert_allclose(executable.run(x)["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_a_network_of_another_form_is_refused(tmp_path: Path) -> None:
    """A branch on a size: another graph for long inputs."""
    node, value = helper.make_node, helper.make_tensor_value_info

    def branch(operator: str) -> Any:
        return helper.make_graph([node(operator, ["x"], ["z"])], operator, [], [value("z", TensorProto.FLOAT, None)])

    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Less", ["length", "thirty"], ["short"]),
        node("If", ["short"], ["y"], then_branch=branch("Relu"), else_branch=branch("Softmax")),
    ]
    path = _written(tmp_path, "branch", nodes, {"x": ["b", "n", 32]})
    with pytest.raises(BuildError, match="not the same for all extents"):
        _compiled(path, [{"n": 24}, {"n": 41}, {"n": 96}], (ROWS,))


def test_tensors_that_shrink_as_extents_grow_are_refused(tmp_path: Path) -> None:
    """The arena is laid out for the greatest extents."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Slice", ["z", "length", "end", "axis"], ["rest"]),
        node("Tanh", ["rest"], ["bent"]),
        node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
        node("Add", ["bent", "mean"], ["y"]),
    ]
    end = numpy_helper.from_array(np.array([1000], np.int64), "end")
    path = _written(tmp_path, "rest", nodes, {"x": ["b", "n", 32], "z": [1, 96, 32]}, [end])
    with pytest.raises(BuildError, match="smaller for the greatest"):
        _compiled(path, [{"n": 24}, {"n": 41}, {"n": 90}], (OpenExtent("n", 0, 1, 1, 90),))


def test_rows_of_a_batch_of_images_are_numbered_through(tmp_path: Path) -> None:
    import onnxruntime

    weight = np.random.default_rng(0).standard_normal((32, 16, 1, 1), np.float32) / 4
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    path = _written(tmp_path, "rows", nodes, {"x": ["b", 16, "n", "m"]}, [numpy_helper.from_array(weight, "w")])
    dimensions = [BATCH, OpenExtent("n", 0, 2, 1, 40), OpenExtent("m", 0, 3, 1, 40)]
    drawn = ((2, 9, 24), (3, 17, 11), (4, 26, 19), (2, 13, 31), (5, 40, 40))
    points = [dict(zip("bnm", point, strict=True)) for point in drawn]
    executable, made = _compiled(path, points, dimensions, "x={}x16x{}x{}")
    assert "vectors" in {each.program.split(".")[0] for each in made.calls}
    session = onnxruntime.InferenceSession(str(path))
    for batch, *image in ((1, 1, 1), (5, 3, 7), (4, 39, 40)):
        x = np.random.default_rng(batch).standard_normal((batch, 16, *image), np.float32)
        np.testing.assert_allclose(executable.run(x)["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_a_kernel_may_need_extents_that_its_operands_do_not_have(tmp_path: Path) -> None:
    """One number for each batch is at most the number of rows."""
    import onnxruntime

    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Cast", ["length"], ["rows"], to=TensorProto.FLOAT),
        node("ReduceSum", ["x", "inner"], ["sums"], keepdims=0),
        node("ReduceSum", ["sums", "axis"], ["sum"], keepdims=0),
        node("Min", ["k", "rows"], ["some"]),
        node("Mul", ["sum", "some"], ["y"]),
    ]
    path = _written(tmp_path, "rows", nodes, {"x": ["b", "n", 4, 8], "k": ["b"]})
    points = [{"b": b, "n": n} for n, b in ((24, 2), (41, 3), (61, 4), (33, 5), (96, 5))]
    executable, made = _compiled(path, points, (ROWS, BATCH), "x={}x{}x4x8")
    (only,) = (each for each in made.plan.operations if "minimum" in each.kernel)
    assert only.tensors[-1] == made.plan.input_tensors[0]
    session = onnxruntime.InferenceSession(str(path))
    for batch, rows in ((1, 1), (2, 17), (5, 96), (4, 95)):
        rng = np.random.default_rng(rows)
        given = {"x": rng.standard_normal((batch, rows, 4, 8), np.float32), "k": np.float32([rows + 3] * batch)}
        np.testing.assert_allclose(executable.run(given)["y"], session.run(None, given)[0], rtol=1e-4, atol=1e-3)


def test_shapes_that_formulas_make_empty_are_looked_at(tmp_path: Path) -> None:
    """At one row a window of two has no place, where the formula of the others says that there are no rows."""
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])]
    path = _written(tmp_path, "pool", nodes, {"x": [2, 8, "n"]})
    points = [{"n": n} for n in (10, 17, 23, 31, 40)]
    with pytest.raises(ModelError, match="a window of 2 elements is larger than the 1"):
        _compiled(path, points, [OpenExtent("n", 0, 2, 1, 40)], "x=2x8x{}")
    executable, _ = _compiled(path, points, [OpenExtent("n", 0, 2, 2, 40)], "x=2x8x{}")
    assert executable.run(np.ones((2, 8, 3), np.float32))["y"].shape == (2, 8, 1)


def test_a_program_that_is_another_at_some_extents_is_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import open_plan
    from kintune.compiler.programs.registry import program_named
    from kintune.search.sketch_program import program_of

    def of_its_extents(sketch: Any, modules: Sequence[Any], candidate: Any) -> list[Any]:
        if not (name := program_of(sketch)):
            return []
        program, variant = program_named(name)
        rule = list(program.rule(modules[-1], variant, Processor.of(host_extensions() or (), 1)))
        return [program.write(module, variant, each) for module, each in zip(modules, rule, strict=False)]

    path = _written(tmp_path, "product", [helper.make_node("MatMul", ["x", "first"], ["y"])], {"x": ["b", "n", 32]})
    monkeypatch.setattr(open_plan, "_open_ended", of_its_extents)
    with pytest.raises(BuildError, match="programs are not written for all extents") as refused:
        _compiled(path, POINTS, (ROWS, BATCH))
    assert len(refused.value.at_fault) == 1
