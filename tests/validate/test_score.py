from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from kintune.core.config import Metric
from kintune.errors import InputError
from kintune.validate.numerics import Difference, judge_score
from kintune.validate.score import ScoreOrder, main, score
from tests.support.processes import wait_until_gone

METRICS = """
def total(run):
    print("hello")
    return run({"x": [1.0, 2.0]})["y"].sum()

def split(run, held_back):
    return 2.0 if held_back else 1.0

def nothing(run):
    return None

def undefined(run):
    return float("nan")

def broken(run):
    raise KeyError("no such sample")

def leaves(run):
    import os
    os._exit(3)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", [x], [y])
    path = tmp_path / "negative.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    (tmp_path / "metrics.py").write_text(METRICS.replace("[1.0, 2.0]", "__import__('numpy').float32([1.0, 2.0])"))
    return str(path)


@pytest.mark.needs("torch")
def test_a_program_of_pytorch_is_scored_as_pytorch_runs_it(model: str, tmp_path: Path) -> None:
    import torch

    class Negative(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"y": -x, "none": None, "sum": x.sum()}

    torch.export.save(torch.export.export(Negative(), (torch.zeros(2),)), tmp_path / "negative.pt2")
    metric = Metric("metrics", "total", str(tmp_path), 0.1)
    assert score(ScoreOrder(metric, 1, exported=str(tmp_path / "negative.pt2"))) == -3.0


def order(model: str, function: str, module: str = "metrics", *, held_back: bool = False) -> ScoreOrder:
    metric = Metric(module, function, str(Path(model).parent), 0.1)
    return ScoreOrder(metric, 1, onnx=model, held_back=held_back)


@pytest.mark.parametrize("module", ["metrics", "metrics.py"])
def test_a_function_of_a_module_or_a_file_scores_the_model(model: str, module: str) -> None:
    assert score(order(model, "total", module)) == -3.0


def test_what_a_function_prints_is_added_to_a_log(model: str, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "run.log"
    for _ in range(2):
        score(order(model, "total"), log)
    assert log.read_text() == "hello\nhello\n"


def test_a_function_that_knows_of_it_is_told_which_data_to_use(model: str) -> None:
    assert score(order(model, "split")) == 1.0
    assert score(order(model, "split", held_back=True)) == 2.0


@pytest.mark.parametrize(
    ("module", "function", "said"),
    [
        ("metrics", "nothing", "metric metrics:nothing: it returned NoneType instead of a number"),
        ("metrics", "undefined", "metric metrics:undefined: it returned nan, which is not a valid score"),
        ("metrics", "broken", "metric metrics:broken: it raised KeyError: 'no such sample'"),
        ("metrics", "leaves", "metric metrics:leaves: its process ended with code 3"),
        ("metrics", "absent", "metric metrics:absent: metrics has no function absent"),
        ("elsewhere", "total", "metric elsewhere:total: there is no module elsewhere"),
        ("elsewhere.py", "total", "metric elsewhere.py:total: there is no file elsewhere.py"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said_in_a_line(model: str, module: str, function: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        score(order(model, function, module))
    assert str(error.value) == said


@pytest.mark.parametrize("module", ["metrics", "metrics.py", "elsewhere", "elsewhere.py", "empty.py"])
@pytest.mark.parametrize("function", ["total", "split", "nothing", "undefined", "broken", "absent"])
@pytest.mark.parametrize("held_back", [False, True])
def test_an_order_is_answered_in_a_file(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, function: str, held_back: bool
) -> None:
    """What the process of a score does."""
    (tmp_path / "empty.py").write_text("total = 3")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    asked, answered = tmp_path / "order.json", tmp_path / "score.json"
    asked.write_bytes(msgspec.json.encode(order(model, function, module, held_back=held_back)))
    main([str(asked), str(answered)])
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    answer = msgspec.json.decode(answered.read_bytes())
    failures = {
        "elsewhere": "there is no module elsewhere",
        "elsewhere.py": "there is no file elsewhere.py",
        "empty.py": f"empty.py has no function {function}",
    }
    in_metrics = {
        "nothing": "it returned NoneType instead of a number",
        "undefined": "it returned nan, which is not a valid score",
        "broken": "it raised KeyError: 'no such sample'",
        "absent": f"{module} has no function absent",
    }
    said = failures.get(module) or in_metrics.get(function, "")
    scores = {"total": -3.0, "split": 2.0 if held_back else 1.0}
    assert answer == {"score": None if said else scores[function], "failure": said}


def test_a_model_runs_on_the_cpu_alone(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some builds of onnxruntime have other devices, which compute otherwise."""
    given: list[Any] = []

    class Session(onnxruntime.InferenceSession):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            given.append(named.get("providers"))
            super().__init__(*arguments, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(sys, "path", list(sys.path))
    asked, answered = tmp_path / "order.json", tmp_path / "score.json"
    asked.write_bytes(msgspec.json.encode(order(model, "total", "metrics.py")))
    main([str(asked), str(answered)])
    assert msgspec.json.decode(answered.read_bytes())["score"] == -3.0
    assert given == [["CPUExecutionProvider"]]


HANGS = """
import os, signal, subprocess, sys
if __name__ != "__main__":
    subprocess.Popen([sys.executable, __file__])
elif len(sys.argv) == 1:
    child = subprocess.Popen([sys.executable, __file__, "child of a child"])
    open("written", "w").write(f"{os.getpid()} {child.pid}")
    os.rename("written", "started")
signal.pause()
"""


def test_what_takes_too_long_is_killed_with_its_children(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            while not (tmp_path / "started").exists():
                os.sched_yield()
            raise subprocess.TimeoutExpired("it", timeout)

    monkeypatch.setattr(subprocess, "Popen", Impatient)
    (tmp_path / "hangs.py").write_text(HANGS)
    with pytest.raises(InputError, match="metric hangs:total: it took more than 1800 s"):
        score(order(model, "total", "hangs"))
    for pid in (tmp_path / "started").read_text().split():
        wait_until_gone(int(pid))


def test_a_score_is_judged_by_what_may_be_lost() -> None:
    metric = Metric("m", "f", "/", max_drop=0.02, reference=0.9)
    far = Difference(1.0, 1.0, "far off", norm=np.inf)
    assert judge_score(far, metric, 0.885).disagreement == ""
    assert judge_score(far, metric, 0.95).disagreement == ""
    assert "its score by m:f is 0.87 instead of 0.9" in judge_score(far, metric, 0.87).disagreement
