"""Denormal numbers in a validation: the reference treats them as the result does, and onnxruntime's option is timed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.core.hybrid import Hybrid
from kintune.core.model import Tensor
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.runtime.hybrid_package import write_hybrid
from kintune.validate import validation_run
from kintune.validate.validation import TUNED, validate_executable
from tests.support.toy_model import calling, manifest

ROWS, WIDE = 64, 256
CONDITIONS = ValidationContext(threads=1, rounds=2, min_rounds=1, race_seconds=0.2)


def write_fading(path: Path, factor: float) -> bytes:
    """y = (x * factor) w w w / factor: with a factor of 1e-39, products of denormal numbers."""
    weight = np.random.default_rng(0).normal(size=(WIDE, WIDE)).astype(np.float32) / 16
    constants = {
        "factor": np.float32(factor),
        "w": weight,
        "back": np.float32(1e38),
        "rest": np.float32(1e-38 / factor),
    }
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["a0"]),
        *(helper.make_node("MatMul", [f"a{i}", "w"], [f"a{i + 1}"]) for i in range(3)),
        helper.make_node("Mul", ["a3", "back"], ["b"]),
        helper.make_node("Mul", ["b", "rest"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDE]) for name in "xy"]
    graph = helper.make_graph(
        nodes, "fading", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    )
    content: bytes = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)]
    ).SerializeToString()
    path.write_bytes(content)
    return content


def validated(folder: Path, factor: float, *, keep: bool = False, timed: bool = True) -> ValidationResult:
    """The validation of a result that runs in onnxruntime altogether."""
    onnx_path, tuned = folder / "fading.onnx", folder / "fading.kt"
    graph = write_fading(onnx_path, factor)
    ends = [[Tensor(name, (ROWS, WIDE), "float32")] for name in "xy"]
    described = msgspec.structs.replace(
        manifest(calling("add", *ends), keep_denormals=keep, threads=1), hybrid=Hybrid((), {"MatMul": 3}, {}, ())
    )
    write_hybrid(tuned, described, graph, [])
    item = ValidationItem(str(tuned), onnx=str(onnx_path), compare=("onnxruntime",), timed=timed)
    return validate_executable(CONDITIONS, item)


def test_flushing_is_compared_with_flushing_and_what_it_changes_is_said(tmp_path: Path) -> None:
    found = validated(tmp_path, 1e-39, timed=False)
    assert found.within_tolerance is True
    (note,) = found.notes
    assert note.startswith("Flushing denormal numbers to zero changes outputs of the model itself (--keep-denormals")


@pytest.mark.parametrize(("ratio", "timed"), [(0.5, {"onnxruntime_flushing"}), (1.0, set())])
def test_onnxruntime_with_its_option_is_timed_where_that_is_faster(
    ratio: float, timed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some processors compute with denormal numbers as fast as with others, so the ratio of times is given."""
    monkeypatch.setattr(validation_run, "paired_ratio", lambda *_: ratio)
    found = validated(tmp_path, 1e-39)
    assert set(found.latency_ms) == {TUNED, "onnxruntime"} | timed


@pytest.mark.parametrize(("factor", "keep"), [(1e-39, True), (1e-3, False)])
def test_elsewhere_there_is_nothing_more_to_time_or_to_say(tmp_path: Path, factor: float, keep: bool) -> None:
    found = validated(tmp_path, factor, keep=keep)
    assert set(found.latency_ms) == {TUNED, "onnxruntime"}
    assert (found.within_tolerance, found.notes) == (True, ())
