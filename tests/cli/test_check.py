from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.core.paired_ratio import PairedRatio
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.errors import EngineError
from kintune.partition.keeping import hand_over_all
from kintune.runtime.merging import merge
from kintune.validate.baseline_protocol import BaselineContext
from kintune.validate.latency_check import LatencyCheck
from kintune.validate.validation import validate_executable
from tests.support.toy_model import write_model

if TYPE_CHECKING:
    from tests.support.command import Kintune


def write_original(path: Path, name: str = "x", size: int = 1000, skew: float = 0.0) -> None:
    """The network of `write_model` as an ONNX file, its weights moved by `skew`."""
    weight = numpy_helper.from_array(np.arange(size, dtype=np.float32) + skew, "w")
    tensor = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [size]) for each in (name, "out")]
    nodes = [helper.make_node("Add", [name, "w"], ["t"]), helper.make_node("Add", ["t", "w"], ["out"])]
    graph = helper.make_graph(nodes, "toy", tensor[:1], tensor[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[BaselineContext, float]]:
    """What is timed; it takes 0.9 of onnxruntime's time."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "toy.kt")
    write_original(tmp_path / "original.onnx")
    kept: list[tuple[BaselineContext, float]] = []

    def check(context: BaselineContext, seconds: float, at_most: float, slack_ms: float) -> LatencyCheck:
        kept.append((context, seconds))
        interval = PairedRatio(0.9, 0.89, 0.91, 20)
        return LatencyCheck(0.9, 1.0, 0.9, 0.88, 0.93, 20, interval, at_most + slack_ms)

    monkeypatch.setattr("kintune.cli.check.check_latency", check)
    compared = ValidationResult({}, 0.0, 0.0, Verdict.RIGHT, ("onnxruntime",), {}, bound="they are equal")
    monkeypatch.setattr("kintune.cli.check.validate_executable", lambda *_: compared)
    return kept


Asked = list[tuple[BaselineContext, float]]


@pytest.mark.parametrize(
    ("at_most", "code", "verdict"), [(1.0, 0, "passed"), (0.9, 0, "not decided, which passes"), (0.8, 1, "slower")]
)
def test_the_exit_code_tells(kintune: Kintune, asked: Asked, at_most: float, code: int, verdict: str) -> None:
    said = kintune("check", "toy.kt", "--model", "original.onnx", "--at-most", at_most)
    assert (said.code, said.err) == (code, "")
    assert "0.900 of it (8 of 10 of 20 rounds between 0.880 and 0.930)" in said.out
    assert said.out.splitlines()[-1].endswith(f"{verdict}." if code == 0 else "failed.")


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({}, 0, "Its outputs are right: they are equal."),
        (
            {"verdict": Verdict.WRONG, "disagreement": "output 'y' is off"},
            1,
            "Its outputs are WRONG: output 'y' is off.",
        ),
        ({"verdict": Verdict.NOT_COMPARED, "not_compared": ("y: all NaN",)}, 0, "Not compared: y: all NaN."),
    ],
)
def test_outputs_are_compared(
    kintune: Kintune, asked: Asked, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: int, said: str
) -> None:
    compared = ValidationResult({}, 0.0, 0.0, Verdict.RIGHT, ("onnxruntime",), {}, bound="they are equal")
    compared = msgspec.structs.replace(compared, **changes)
    monkeypatch.setattr("kintune.cli.check.validate_executable", lambda *_: compared)
    told = kintune("check", "toy.kt", "--model", "original.onnx")
    assert told.code == code
    assert said in told.out.splitlines()
    strict = kintune("check", "toy.kt", "--model", "original.onnx", "--strict")
    assert strict.code == (1 if changes else 0)
    assert ("which strict does not accept: not compared: y: all NaN" in strict.err) == ("not_compared" in changes)


def test_the_outputs_of_a_real_result_are_compared(
    kintune: Kintune, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintune.cli.check.validate_executable", validate_executable)
    said = kintune("check", "toy.kt", "--model", "original.onnx")
    assert said.code == 0
    assert "Its outputs are right: they are equal." in said.out
    write_original(tmp_path / "other.onnx", skew=0.5)
    said = kintune("check", "toy.kt", "--model", "other.onnx", "--json", "-")
    document = json.loads(said.out)
    assert (document["verdict"], said.code, document["not_compared"]) == ("wrong", 1, [])
    assert "output 'out': " in document["disagreement"]


def test_the_document_says_the_same(kintune: Kintune, asked: Asked) -> None:
    said = kintune("check", "toy.kt", "--model", "original.onnx", "--at-most", 0.5, "--json", "-")
    document = json.loads(said.out)
    assert said.code == 1
    assert (document["schema_version"], document["passed"], document["ratio"]) == (1, False, 0.9)
    assert document["combinations"][0]["latency"]["rounds"] == 20
    assert "failed." in said.err


def test_a_model_of_its_name_beside_it_is_taken(kintune: Kintune, asked: Asked) -> None:
    said = kintune("check", "toy.kt")
    assert said.code == 2
    assert "name its ONNX file with --model" in said.err
    name = said.err.partition("there is no ")[2].strip()
    write_original(Path(name))
    assert kintune("check", "toy.kt", "--seconds", 3, "--threads", 1).code == 0
    context, seconds = asked[0]
    assert (context.subject.onnx, seconds, context.threads) == (name, 3.0, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["missing.kt"], "missing.kt does not exist"),
        (["original.onnx"], "original.onnx"),
        (["toy.kt", "--model", "missing.onnx"], "no such file"),
        (["toy.kt", "--model", "other.onnx"], "has the inputs y, the executable x"),
        (["toy.kt", "--model", "larger.onnx"], "its input x is 2000, and 1000 in the executable"),
        (["toy.kt", "--model", "original.onnx", "--at-most", "0"], "--at-most must be more than 0, and is 0"),
        (["toy.kt", "--model", "original.onnx", "--at-most", "nan"], "--at-most must be more than 0, and is nan"),
        (["toy.kt", "--model", "original.onnx", "--seconds", "-1"], "--seconds must be more than 0, and is -1"),
        (["toy.kt", "--model", "original.onnx", "--input", "missing.npz"], "missing.npz does not exist"),
        (["toy.kt", "--model", "original.onnx", "--threads", "4000"], "ask for 1 to"),
        (["toy.kt", "--model", "original.onnx", "--json", "missing/x.json"], "there is no directory"),
    ],
)
def test_wrong_input_is_one_line_before_any_work(
    kintune: Kintune, asked: Asked, tmp_path: Path, arguments: list[str], line: str
) -> None:
    write_original(tmp_path / "other.onnx", "y")
    write_original(tmp_path / "larger.onnx", size=2000)
    said = kintune("check", *arguments)
    assert (said.code, said.out, said.err.count("\n"), asked) == (2, "", 1, [])
    assert line in said.err


def test_the_variant_that_runs_here_is_checked(kintune: Kintune, asked: Asked, tmp_path: Path) -> None:
    foreign = write_model(tmp_path / "foreign.kt", machine="s390x", threads=7)
    merge([foreign, write_model(tmp_path / "own.kt", threads=1)], tmp_path / "fat.kt")
    assert kintune("check", "fat.kt", "--model", "original.onnx").code == 0
    assert asked[0][0].threads == 1
    merge([foreign, write_model(tmp_path / "other.kt", machine="riscv64")], tmp_path / "none.kt")
    said = kintune("check", "none.kt", "--model", "original.onnx")
    assert said.code == 2
    assert "variant 0 is built for s390x" in said.err


def test_what_does_not_run_is_a_failure(kintune: Kintune, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> LatencyCheck:
        raise EngineError("kintune does not run: it died")

    monkeypatch.setattr("kintune.cli.check.check_latency", fail)
    said = kintune("check", "toy.kt", "--model", "original.onnx")
    assert (said.code, said.err) == (1, "kintune: error: kintune does not run: it died\n")


def test_both_are_timed(kintune: Kintune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "toy.kt")
    write_original(tmp_path / "original.onnx")
    arguments = ("check", "toy.kt", "--model", "original.onnx", "--seconds", 0.1, "--json", "c.json")
    assert kintune(*arguments, "--at-most", 1e6).code == 0
    found = json.loads((tmp_path / "c.json").read_text())["combinations"][0]["latency"]
    assert found["rounds"] >= 5
    assert found["low"] <= found["ratio"] <= found["high"]
    assert kintune(*arguments, "--at-most", 1e-6).code == 1


def test_what_the_timings_do_not_tell_is_said(kintune: Kintune, asked: Asked) -> None:
    said = kintune("check", "toy.kt", "--model", "original.onnx", "--at-most", 0.9, "--json", "-")
    (line,) = json.loads(said.out)["uncertain"]
    assert "it takes 0.890 to 0.910 of onnxruntime's latency, and 0.9 is allowed: 20 rounds" in line
    assert f"Uncertain: {line}." in said.err


def test_a_result_that_runs_in_onnxruntime_may_take_what_the_way_there_takes(
    kintune: Kintune, asked: Asked, tmp_path: Path
) -> None:
    hand_over_all(tmp_path / "toy.kt", tmp_path / "original.onnx", {}, tmp_path / "all.kt")
    said = kintune("check", "all.kt", "--model", "original.onnx", "--at-most", 0.885)
    assert said.code == 0
    assert "in onnxruntime as a whole, so 10 us more are allowed" in said.out
    assert kintune("check", "toy.kt", "--model", "original.onnx", "--at-most", 0.885).code == 1
