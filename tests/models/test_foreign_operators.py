"""Graphs in which operators of other domains do all of the work are left to onnxruntime without being simplified."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from kintune.models import onnx as reading
from kintune.models.foreign_operators import is_only_foreign
from kintune.partition import partition as cutting
from kintune.partition.partition import partition
from tests.support.partitions import parse

FOREST = "h = Identity(x)  a, b = ai.onnx.ml.TreeEnsembleClassifier(h)  y = Cast<to = 1>(a)"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (FOREST, True),
        ("y = Relu(x)", False),
        ("h = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x)  y = MatMul(h, h)", False),
        ("h = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x)" + "  h = Exp(h)" * 6 + "  y = Exp(h)", False),
        ("h = com.microsoft.Gelu(x)  y = Relu(h)", False),
    ],
)
def test_which_graphs_are_meant(nodes: str, expected: bool) -> None:
    assert is_only_foreign(parse(f"m (float[4, 4] x) => (float[4, 4] y) {{ {nodes} }}", "ai.onnx.ml")) is expected


def test_they_are_neither_simplified_nor_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("it costs seconds")

    text = "m (float[4, 4] x) => (float[4, 4] y) { y = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x) }"
    onnx.save(parse(text, "ai.onnx.ml"), tmp_path / "net.onnx")
    monkeypatch.setattr(reading, "slim", refuse)
    monkeypatch.setattr(cutting, "infer_types", refuse)
    found = partition(reading.read(tmp_path / "net.onnx", {}), lambda node: "")
    assert found.regions == ()
    assert found.operators == {"ai.onnx.ml::Scaler": 1}
    assert found.outputs == {"y": ("float32", (4, 4))}


def test_the_model_that_was_read_last_is_kept_until_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    text = "m (float[2] x) => (float[2] y) { y = Relu(x) }"
    onnx.save(parse(text), path)
    first = reading.read(path, {})
    assert reading.read(path, {}) is first
    onnx.save(parse(text.replace("Relu", "Sigmoid")), path)
    second = reading.read(path, {})
    assert [node.op_type for node in second.proto.graph.node] == ["Sigmoid"]
    assert reading.read(path, {}) is second
