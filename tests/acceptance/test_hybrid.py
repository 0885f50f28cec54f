"""Models with operators that cannot be compiled: the real commands give results that run partly in onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from kintune.runtime.manifest import read_manifest
from tests.support.partitions import computed, parse
from tests.support.string_models import LABELS, write_classifier, write_text_model

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm

DISTANCES_ALONE = 'm (float[5, 16] x, float[8, 16] w) => (float[5, 8] y) {\
 y = com.microsoft.CDist<metric = "euclidean">(x, w) }'
NON_ZERO = "m (float[3, 4] x) => (int64[2, N] y) { y = NonZero(x) }"
IN_A_BRANCH = """
    m (float[64, 512] x, bool c) => (float[64, 512] y) {
        y = If(c) <
            then_branch = yes () => (float[64, 512] a) {
                p = Relu(x)  q = Sigmoid(p)  r = CumSum(q, axis)  n = NonZero(r)  f = Cast<to = 1>(n)
                s = ReduceMax<keepdims = 0>(f)  t = Neg(q)  u = Abs(t)  a = Add(u, s)
            },
            else_branch = no () => (float[64, 512] b) { b = Neg(x) }
        >
    }
"""


def distances_between_convolutions() -> ModelProto:
    """Two convolutions, distances, which are not compiled, two convolutions."""
    draw = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = draw.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        return numpy_helper.from_array(values, name)

    def conv(source: str, number: int) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Conv", [source, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"),
        ]

    nodes = [
        *conv("x", 1),
        *conv("r1", 2),
        helper.make_node("Reshape", ["r2", "rows"], ["q"], "to rows"),
        helper.make_node("CDist", ["q", "points"], ["l"], "distance", domain="com.microsoft", metric="euclidean"),
        helper.make_node("Reshape", ["l", "image"], ["i"], "to an image"),
        *conv("i", 3),
        *conv("r3", 4),
        helper.make_node("Tanh", ["r4"], ["y"], "last"),
    ]
    weights = [
        weight("w1", 32, 16, 3, 3), weight("w2", 32, 32, 3, 3), weight("w3", 32, 16, 3, 3), weight("w4", 16, 32, 3, 3),
        weight("points", 32, 256),
        numpy_helper.from_array(np.array([128, 256]), "rows"),
        numpy_helper.from_array(np.array([1, 16, 16, 16]), "image"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "between",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 16, 16])],
        weights,
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9)


def draw(**shapes: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
    generator = np.random.default_rng(5)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def said(place: Place, *arguments: object) -> str:
    """What a command says that succeeds."""
    command = place.start(*arguments)
    assert command.wait() == 0, command.out + command.err
    return command.out + command.err


def compiled(place: Place, model: ModelProto, inputs: Mapping[str, NDArray[np.generic]]) -> str:
    """What is said of a model whose result computes what onnxruntime computes of it."""
    onnx.save(model, place.folder / "m.onnx")
    np.savez(place.folder / "x.npz", **inputs)
    told = said(place, "compile", "m.onnx", "--output", "m.kt")
    said(place, "run", "m.kt", "--input", "x.npz", "--output", "y.npz")
    expected = computed(model, inputs)
    with np.load(place.folder / "y.npz") as outputs:
        assert set(outputs) == set(expected)
        for name, values in expected.items():
            assert outputs[name].dtype == values.dtype
            np.testing.assert_allclose(outputs[name], values, rtol=1e-3, atol=1e-4)
    return told


def evaluated(place: Place) -> dict[str, object]:
    said(place, "evaluate", "m.kt", "--repeats", 3, "--input", "x.npz", "--json", "e.json")
    document: dict[str, object] = json.loads(Path(place.folder / "e.json").read_text())
    return document


def refused(place: Place, operator: str) -> None:
    """With --no-onnxruntime it is refused in one line that names the operator, and nothing is written."""
    command = place.start("compile", "m.onnx", "--no-onnxruntime", "--output", "refused.kt")
    assert command.wait() == 2, command.err
    (line,) = [line for line in command.err.splitlines() if line.startswith("kintune: error: ")]
    assert operator in line
    assert "m.onnx" in line
    assert "Traceback" not in command.err
    assert not list(place.folder.glob("refused.kt*"))


def test_distances_between_convolutions_run_in_onnxruntime(empty_place: Place) -> None:
    told = compiled(empty_place, distances_between_convolutions(), draw(x=(1, 16, 32, 32)))
    assert "2 regions of the graph are compiled; onnxruntime runs com.microsoft::CDist (1)" in told
    assert evaluated(empty_place)
    refused(empty_place, "CDist")


@pytest.mark.slow
def test_a_model_of_nothing_but_distances_runs_in_onnxruntime(empty_place: Place) -> None:
    """The fast tests have the same with a node whose shape depends on the data."""
    told = compiled(empty_place, parse(DISTANCES_ALONE, "com.microsoft"), draw(x=(5, 16), w=(8, 16)))
    assert "the whole model runs in onnxruntime" in told
    assert evaluated(empty_place)
    refused(empty_place, "CDist")


def test_a_shape_that_depends_on_the_data_runs_in_onnxruntime(empty_place: Place) -> None:
    told = compiled(empty_place, parse(NON_ZERO), {"x": np.array([[1, 0, 2, 0], [0] * 4, [3] * 4], np.float32)})
    assert "the whole model runs in onnxruntime" in told
    assert evaluated(empty_place)
    refused(empty_place, "NonZero")


def test_strings_and_maps_stay_with_onnxruntime(empty_place: Place) -> None:
    write_text_model(empty_place.folder / "t.onnx")
    model = onnx.load(empty_place.folder / "t.onnx")
    words = np.array(["red", "the", "other"] * 21)
    inputs = {**draw(x=(64, 64)), "words": words}
    np.savez(empty_place.folder / "x.npz", **inputs)
    told = said(empty_place, "compile", "t.onnx", "--input", "x.npz", "--output", "t.kt")
    assert "1 region of the graph is compiled; onnxruntime runs Concat (1), StringNormalizer (1)" in told
    said(empty_place, "run", "t.kt", "--input", "x.npz", "--output", "y.npz")
    expected = computed(model, {**inputs, "words": words.astype(object)})
    with np.load(empty_place.folder / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected["y"], rtol=1e-3, atol=1e-4)
        assert outputs["capital"].tolist() == expected["capital"].tolist() == [*map(str.upper, words), "THE"]


@pytest.mark.slow
def test_a_sequence_of_maps_is_an_output(empty_place: Place) -> None:
    """The fast tests of `runtime` and `partition` have such outputs, and here strings."""
    write_classifier(empty_place.folder / "m.onnx")
    np.savez(empty_place.folder / "x.npz", **draw(x=(64, 64)))
    told = said(empty_place, "compile", "m.onnx", "--output", "m.kt")
    assert "onnxruntime runs ai.onnx.ml::LabelEncoder (1), ai.onnx.ml::ZipMap (1)" in told
    told = said(empty_place, "run", "m.kt", "--input", "x.npz", "--output", "y.npz")
    assert "probabilities: sequence of 64" in told
    assert "y.npz, without probabilities, which .npz files cannot hold" in told
    with np.load(empty_place.folder / "y.npz") as outputs:
        assert set(outputs["label"]) <= set(LABELS)
    refused(empty_place, "output label holds strings")


def test_regions_in_a_branch(empty_place: Place) -> None:
    model = parse(IN_A_BRANCH)
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
    inputs = draw(x=(64, 512))
    told = compiled(empty_place, model, {**inputs, "c": np.array(True)})
    assert "compiled; onnxruntime runs" in told
    other = {**inputs, "c": np.array(False)}
    np.savez(empty_place.folder / "x.npz", **other)
    said(empty_place, "run", "m.kt", "--input", "x.npz", "--output", "y.npz")
    with np.load(empty_place.folder / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], computed(model, other)["y"], rtol=1e-5)


@pytest.mark.slow  # tests/validate/test_region_choice.py and test_validation.py choose regions
def test_what_comes_of_tuning_is_right_whichever_regions_win(empty_place: Place) -> None:
    model, inputs = distances_between_convolutions(), draw(x=(1, 16, 32, 32))
    onnx.save(model, empty_place.folder / "m.onnx")
    np.savez(empty_place.folder / "x.npz", **inputs)
    limits = ("--trials", 8, "--threads", empty_place.threads)
    said(empty_place, "tune", "m.onnx", *limits, "--output", "m.kt", "--quiet", "--json", "r.json")
    said(empty_place, "run", "m.kt", "--input", "x.npz", "--output", "y.npz")
    with np.load(empty_place.folder / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], computed(model, inputs)["y"], rtol=1e-3, atol=1e-4)
    report = json.loads((empty_place.folder / "r.json").read_text())
    assert report["within_tolerance"]
    hybrid = read_manifest(empty_place.folder / "m.kt").hybrid
    assert hybrid is not None
    assert hybrid.operators["com.microsoft::CDist"] == 1
