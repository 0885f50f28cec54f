from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kintune.partition import compilable
from kintune.partition.compilable import CompilableNodes
from kintune.partition.single_node import SingleNode, single_node
from kintune.partition.tensor_types import infer_types
from tests.support.partitions import parse

pytestmark = pytest.mark.tvm

RELU = "m (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"
LSTM = """
    m (float[5, 1, 8] x, float[1, 16, 8] w, float[1, 16, 4] r) => (float[5, 1, 1, 4] y) {
        y = LSTM<hidden_size = 4, activations = ["Wobble", "Tanh", "Tanh"]>(x, w, r)
    }
"""


def alone(text: str) -> SingleNode:
    model = parse(text)
    found = single_node(model.graph.node[0], infer_types(model)[()], {}, list(model.opset_import), {}.get)
    assert found is not None
    return found


def file_in(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of the nodes that the compiler is asked for, which it cannot compile if that is in their name."""
    asked: list[str] = []

    def answer(node: SingleNode, target: object, *, compiled: bool) -> str:
        (proto,) = node.model.graph.node
        asked.append(proto.op_type)
        return "operator LSTM is not supported" if proto.op_type == "LSTM" else ""

    monkeypatch.setattr(compilable, "_try", answer)
    return asked


class TestAnswers:
    """With a compiler that is not really asked."""

    def test_a_node_is_asked_for_once(self, cpu: object, tmp_path: Path, tried: list[str]) -> None:
        nodes = CompilableNodes(cpu, tmp_path)
        assert [nodes.why_not(alone(text)) for text in (RELU, RELU, LSTM, LSTM)] == [
            "", "", "operator LSTM is not supported", "operator LSTM is not supported",
        ]  # fmt: skip
        assert tried == ["Relu", "LSTM"]

    def test_the_next_process_knows_the_answers(self, cpu: object, tmp_path: Path, tried: list[str]) -> None:
        CompilableNodes(cpu, tmp_path).why_not(alone(LSTM))
        assert CompilableNodes(cpu, tmp_path).why_not(alone(LSTM)) == "operator LSTM is not supported"
        assert tried == ["LSTM"]

    def test_another_target_has_answers_of_its_own(self, cpu: object, tmp_path: Path, tried: list[str]) -> None:
        import tvm

        CompilableNodes(cpu, tmp_path).why_not(alone(RELU))
        CompilableNodes(tvm.target.Target({"kind": "llvm", "mcpu": "znver4"}), tmp_path).why_not(alone(RELU))
        assert tried == ["Relu", "Relu"]
        assert len(list(tmp_path.iterdir())) == 2

    def test_damaged_lines_are_asked_for_again(self, cpu: object, tmp_path: Path, tried: list[str]) -> None:
        nodes = CompilableNodes(cpu, tmp_path)
        nodes.why_not(alone(RELU))
        nodes.why_not(alone(LSTM))
        path = file_in(tmp_path)
        lines = path.read_bytes().splitlines()
        path.write_bytes(b'\xff\xfe\n{"node": 3}\n\n' + b"\n".join([*lines[:3], lines[3][:20]]))
        again = CompilableNodes(cpu, tmp_path)
        assert again.why_not(alone(RELU)) == ""
        assert again.why_not(alone(LSTM)) == "operator LSTM is not supported"
        assert tried == ["Relu", "LSTM", "LSTM"]

    def test_a_line_that_was_cut_off_does_not_spoil_the_next_one(
        self, cpu: object, tmp_path: Path, tried: list[str]
    ) -> None:
        CompilableNodes(cpu, tmp_path).why_not(alone(RELU))
        path = file_in(tmp_path)
        path.write_bytes(path.read_bytes()[:-5])
        CompilableNodes(cpu, tmp_path).why_not(alone(LSTM))
        CompilableNodes(cpu, tmp_path).why_not(alone(LSTM))
        assert tried == ["Relu", "LSTM"]

    def test_what_is_written_while_a_node_is_tried_says_so(
        self, cpu: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(node: SingleNode, target: object, *, compiled: bool) -> str:
            raise KeyboardInterrupt

        monkeypatch.setattr(compilable, "_try", stop)
        monkeypatch.setattr(compilable.time, "time", lambda: 12.0)
        with pytest.raises(KeyboardInterrupt):
            CompilableNodes(cpu, tmp_path).why_not(alone(RELU))
        tried, taken_back = file_in(tmp_path).read_bytes().splitlines()
        assert msgspec.json.decode(tried) == {
            "node": alone(RELU).digest,
            "why": "the compiler ended the process when it was tried",
            "process": os.getpid(),
            "since": 12.0,
        }
        assert msgspec.json.decode(taken_back) == {"node": alone(RELU).digest, "why": None}

    def test_who_was_interrupted_tries_the_node_again(
        self, cpu: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = iter([KeyboardInterrupt, ""])

        def stop(node: SingleNode, target: object, *, compiled: bool) -> str:
            answer = next(answers)
            if not isinstance(answer, str):
                raise answer
            return answer

        monkeypatch.setattr(compilable, "_try", stop)
        with pytest.raises(KeyboardInterrupt):
            CompilableNodes(cpu, tmp_path).why_not(alone(RELU))
        assert CompilableNodes(cpu, tmp_path).why_not(alone(RELU)) == ""

    def test_a_folder_that_cannot_be_written_costs_the_memory_alone(
        self, cpu: object, tmp_path: Path, tried: list[str]
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        nodes = CompilableNodes(cpu, tmp_path / "file")
        assert [nodes.why_not(alone(RELU)), nodes.why_not(alone(RELU))] == ["", ""]
        assert tried == ["Relu"]


CRASH = """
import os, sys
from pathlib import Path
import tvm
from kintune.partition import compilable
from tests.partition.test_compilable import RELU, alone

compilable._try = lambda node, target, **about: os.kill(os.getpid(), 11)
compilable.CompilableNodes(tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}),
                           Path(sys.argv[1])).why_not(alone(RELU))
"""


def test_a_node_that_ends_the_process_is_left_alone_by_the_next(cpu: object, tmp_path: Path, tried: list[str]) -> None:
    ended = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], env=dict(os.environ), check=False)
    assert ended.returncode == -11
    assert CompilableNodes(cpu, tmp_path).why_not(alone(RELU)) == "the compiler ended the process when it was tried"
    assert tried == []


def test_it_may_have_been_killed_for_another_reason_so_later_it_is_tried_again(
    cpu: object, tmp_path: Path, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], env=dict(os.environ), check=False)
    now = compilable.time.time()
    monkeypatch.setattr(compilable.time, "time", lambda: now + 7200)
    assert CompilableNodes(cpu, tmp_path).why_not(alone(RELU)) == ""
    assert tried == ["Relu"]


def test_what_another_process_is_trying_is_not_known_yet(cpu: object, tmp_path: Path, tried: list[str]) -> None:
    CompilableNodes(cpu, tmp_path).why_not(alone(LSTM))
    path = file_in(tmp_path)
    line = {"node": alone(RELU).digest, "why": "the compiler ended the process when it was tried"}
    path.write_bytes(msgspec.json.encode({**line, "process": os.getppid(), "since": compilable.time.time()}) + b"\n")
    assert CompilableNodes(cpu, tmp_path).why_not(alone(RELU)) == ""
    assert tried == ["LSTM", "Relu"]


class TestTheCompiler:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (RELU, ""),
            ("m (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, 6, 6] y) { y = Conv(x, w) }", ""),
            (LSTM, "operator LSTM (node of y) cannot be imported: activation wobble is not supported"),
            (LSTM.replace("Wobble", "Sigmoid"), ""),
            ("m (float[2] x) => (float[2] y) { y = com.microsoft.Wobble(x) }", "operator Wobble has no compiled form"),
        ],
    )  # fmt: skip
    def test_it_says_what_it_can_do(self, cpu: object, tmp_path: Path, text: str, why: str) -> None:
        assert CompilableNodes(cpu, tmp_path).why_not(alone(text)) == why

    def test_another_failure_is_one_line(self, cpu: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stumble(*arguments: object, **named: object) -> None:
            raise RuntimeError("Traceback\n  ...\nInternalError: Check failed: (x) is false: \nno such thing")

        monkeypatch.setattr(compilable, "lower", stumble)
        why = CompilableNodes(cpu, tmp_path).why_not(alone(RELU))
        assert why
        assert "\n" not in why


def test_of_a_kind_one_node_is_compiled_and_the_others_are_only_lowered(
    cpu: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def answer(node: SingleNode, target: object, *, compiled: bool) -> str:
        asked.append((node.model.graph.node[0].op_type, compiled))
        return ""

    monkeypatch.setattr(compilable, "_try", answer)
    larger = RELU.replace("[", "[7, ", 2)
    longer = RELU.replace("float[", "float[1", 2)
    assert CompilableNodes(cpu, tmp_path).why_not(alone(RELU)) == ""
    nodes = CompilableNodes(cpu, tmp_path)
    assert [nodes.why_not(alone(text)) for text in (RELU, longer, larger)] == ["", "", ""]
    assert asked == [("Relu", False), ("Relu", True), ("Relu", False)]
