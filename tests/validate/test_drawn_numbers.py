"""Results that draw random numbers, whose outputs are no numbers, or that an input decides about, are compared."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

from kintune.core.hybrid import Hybrid
from kintune.core.model import Tensor
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.models.given_draws import draws_numbers, give_draws
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.manifest import Manifest
from kintune.validate.validation import validate_executable

X = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
QUICK = ValidationContext(threads=1, rounds=2, min_rounds=1, runs=2, race_seconds=0.0)


def write(folder: Path, nodes: list[Any], inputs: dict[str, Tensor], outputs: list[str], **constants: Any) -> Path:
    """An ONNX file of these nodes."""
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(t.name, kinds[t.dtype], t.shape) for t in inputs.values()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def judge(path: Path, host: onnx.ModelProto, inputs: dict[str, Tensor], **item: Any) -> ValidationResult:
    """The validation of a result whose host graph is `host`, all of it in onnxruntime."""
    manifest = Manifest(
        model_name="m", model_digest="0" * 32, inputs=tuple(inputs.values()),
        outputs=tuple(Tensor(value.name, (-1, -1), "float32") for value in host.graph.output), target="{}",
        machine=platform.machine(), isa=(), threads=1, chosen={}, created="", kintune="", tvm="",
        hybrid=Hybrid((), {}, {}, ()),
    )  # fmt: skip
    tuned = path.with_suffix(".kt")
    write_hybrid(tuned, manifest, host.SerializeToString(), [])
    return validate_executable(QUICK, ValidationItem(str(tuned), onnx=str(path), **{"timed": False, **item}))


def drawing(folder: Path) -> Path:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
        helper.make_node("Mul", ["x", "two"], ["z"]),
    ]
    return write(folder, nodes, {"x": Tensor("x", (40, 6), "float32")}, ["y", "z"], two=np.float32(2))


DRAWING = {"x": Tensor("x", (40, 6), "float32")}


def test_outputs_that_depend_on_drawn_numbers_are_compared_given_the_draw(tmp_path: Path) -> None:
    path = drawing(tmp_path)
    host = onnx.load(path)
    found = judge(path, host, DRAWING, compare=("onnxruntime",), timed=True)
    assert found.verdict is Verdict.RIGHT
    assert found.not_compared == ()
    assert len(found.latency_ms["tuned"]) == 2
    host.graph.node[1].op_type = "Sub"
    wrong = judge(path, host, DRAWING)
    assert wrong.verdict is Verdict.WRONG
    assert "output 'y'" in wrong.disagreement


def test_what_differs_in_two_runs_of_the_reference_is_not_compared(tmp_path: Path) -> None:
    path = drawing(tmp_path)
    host = onnx.load(path)
    give_draws(host)  # so that the result is not known to draw any
    found = judge(path, host, DRAWING)
    assert found.verdict is Verdict.RIGHT  # of z
    assert found.not_compared == ("output 'y': two runs of onnxruntime on the same inputs give different values",)


def test_inputs_are_drawn_again_where_outputs_are_no_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "far"], ["below"]),
        helper.make_node("Sqrt", ["below"], ["root"]),
        helper.make_node("Mul", ["x", "root"], ["y"]),
    ]
    path = write(tmp_path, nodes, DRAWING, ["y"], far=np.float32(60))
    found = judge(path, onnx.load(path), DRAWING)
    assert (found.verdict, found.not_compared) == (Verdict.RIGHT, ())
    nothing = write(tmp_path, nodes, DRAWING, ["y"], far=np.float32(1e6))
    found = judge(nothing, onnx.load(nothing), DRAWING)
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.not_compared == ("output 'y': all of its values are infinite or not numbers",)
    assert found.max_abs_error is None


def test_each_value_of_an_input_that_decides_is_compared(tmp_path: Path) -> None:
    def branch(operator: str) -> GraphProto:
        node = helper.make_node(operator, ["x", "two"], ["inner"])
        return helper.make_graph(
            [node], operator, [], [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)]
        )

    def nodes(other: str) -> list[Any]:
        choice = helper.make_node("If", ["wide"], ["y"], then_branch=branch("Add"), else_branch=branch(other))
        return [helper.make_node("Equal", ["sr", "rate"], ["wide"]), choice]

    inputs = {**DRAWING, "sr": Tensor("sr", (), "int64", values="choices", choices=(16000, 8000))}
    constants = {"two": np.float32(2), "rate": np.int64(16000)}
    path = write(tmp_path, nodes("Mul"), inputs, ["y"], **constants)
    assert judge(path, onnx.load(path), inputs).verdict is Verdict.RIGHT
    (tmp_path / "other").mkdir()
    host = onnx.load(write(tmp_path / "other", nodes("Sub"), inputs, ["y"], **constants))
    wrong = judge(path, host, inputs)
    assert wrong.verdict is Verdict.WRONG
    assert wrong.disagreement.endswith("(onnxruntime, sr=8000)")


@pytest.mark.parametrize("opset", [11, 15, 18])
def test_given_numbers_are_like_drawn_ones(opset: int) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["a"], mean=1.0, scale=3.0),
        helper.make_node("RandomUniformLike", ["x"], ["b"], low=2.0, high=4.0),
        helper.make_node("RandomNormal", [], ["c"], shape=[30, 20]),
        helper.make_node("RandomUniform", [], ["d"], shape=[500]),
        helper.make_node("Multinomial", ["x"], ["e"], sample_size=50),
    ]
    kinds = {"a": TensorProto.FLOAT, "b": TensorProto.FLOAT, "c": TensorProto.FLOAT, "d": TensorProto.FLOAT}
    kinds["e"] = TensorProto.INT32
    if opset >= 15:
        nodes += [
            helper.make_node("Sigmoid", ["x"], ["chance"]),
            helper.make_node("Bernoulli", ["chance"], ["f"]),
            helper.make_node("Dropout", ["x", "ratio", "training"], ["g", "mask"]),
        ]
        kinds |= {"f": TensorProto.FLOAT, "g": TensorProto.FLOAT, "mask": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [numpy_helper.from_array(np.float32(0.25), "ratio"), numpy_helper.from_array(np.array(True), "training")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    assert draws_numbers(model)

    def run() -> list[Any]:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(None, {"x": X})
        return found

    drawn = run()
    assert give_draws(model)
    assert not draws_numbers(model)
    given = run()
    for one, other in zip(drawn, given, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert abs(one.mean() - other.mean()) < 0.3 * max(0.3, one.std())
        assert 0.8 < other.std() / one.std() < 1.25
    assert all(np.array_equal(one, other) for one, other in zip(given, run(), strict=True))
