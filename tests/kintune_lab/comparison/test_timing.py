from __future__ import annotations

from types import TracebackType

import msgspec

from kintune.core.model import Tensor
from kintune.core.stage_requests import ValidationContext
from kintune.core.version import __version__
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune_lab.comparison.files import ModelFiles
from kintune_lab.comparison.timing import OTHERS, RuntimeTimes, TimedSubject, runtime_version, time_in_turns

CONDITIONS = ValidationContext(2, rounds=3, min_rounds=3, runs=2)
SUBJECT = TimedSubject("a.kt", ModelFiles(onnx="a.onnx"), (Tensor("x", (1,), "float32"),), seed=7)


class FakeProcesses:
    """Makes runtimes of which each turn takes `ms`; those in `refusing` cannot prepare, those in `dying` stop later."""

    def __init__(self, ms: dict[str, float], refusing: tuple[str, ...] = (), dying: tuple[str, ...] = ()) -> None:
        self.ms = ms
        self.refusing = refusing
        self.dying = dying
        self.contexts: dict[str, BaselineContext] = {}
        self.turns: list[str] = []
        self.closed: list[str] = []

    def __call__(self, name: str, context: BaselineContext) -> FakeProcess:
        self.contexts[name] = context
        return FakeProcess(name, self)


class FakeProcess:
    def __init__(self, name: str, processes: FakeProcesses) -> None:
        self.name = name
        self._processes = processes

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        if self.name in self._processes.refusing:
            raise EngineError("not installed: pip install it\nand more")

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        self._processes.turns.append(self.name)
        if self.name in self._processes.dying and self._processes.turns.count(self.name) > 2:
            raise EngineError("it died")
        return (self._processes.ms[self.name],) * turn.runs

    def close(self) -> None:
        self._processes.closed.append(self.name)


def test_all_take_turns_under_equal_conditions() -> None:
    fake = FakeProcesses({"kintune": 1.0, "onnxruntime": 2.0})
    said: list[str] = []
    times = time_in_turns(SUBJECT, ["onnxruntime"], CONDITIONS, (0, 1), said.append, fake)
    assert times == {
        "kintune": RuntimeTimes((1.0,) * 6, rounds_ms=(1.0,) * 3),
        "onnxruntime": RuntimeTimes((2.0,) * 6, rounds_ms=(2.0,) * 3),
    }
    assert fake.turns[2:] == ["kintune", "onnxruntime", "onnxruntime", "kintune", "kintune", "onnxruntime"]
    ours, theirs = fake.contexts["kintune"], fake.contexts["onnxruntime"]
    assert (ours.threads, ours.cores, ours.seed) == (theirs.threads, theirs.cores, theirs.seed) == (2, (0, 1), 7)
    assert (ours.subject.executable, ours.subject.onnx) == ("a.kt", None)
    assert (theirs.subject.executable, theirs.subject.onnx) == (None, "a.onnx")
    assert set(fake.closed) == {"kintune", "onnxruntime"}
    assert said == ["preparing kintune", "preparing onnxruntime", "timing in turns"]


def test_one_that_cannot_run_has_a_reason_and_the_others_go_on() -> None:
    fake = FakeProcesses({"kintune": 1.0, "onnxruntime": 2.0}, refusing=("openvino",), dying=("kintune",))
    times = time_in_turns(SUBJECT, ["onnxruntime", "openvino"], CONDITIONS, (0,), lambda _: None, fake)
    assert times["openvino"] == RuntimeTimes(problem="not installed: pip install it")
    assert times["kintune"] == RuntimeTimes(problem="it died")
    assert len(times["onnxruntime"].times_ms) == 6


def test_without_a_result_the_others_are_timed() -> None:
    fake = FakeProcesses({"onnxruntime": 2.0})
    subject = TimedSubject(None, SUBJECT.files, SUBJECT.tensors)
    assert list(time_in_turns(subject, ["onnxruntime"], CONDITIONS, (0,), lambda _: None, fake)) == ["onnxruntime"]


def test_times_have_quantiles() -> None:
    times = RuntimeTimes((3.0, 1.0, 2.0))
    assert times.median_ms == 2.0
    assert RuntimeTimes().median_ms is None
    low = times.share(0.1)
    assert low is not None
    assert low < 2.0


def test_a_runtime_has_a_version() -> None:
    assert runtime_version("kintune") == __version__
    assert runtime_version("no such runtime") == ""
    assert "kintune" not in OTHERS
    assert "onnxruntime" in OTHERS


def test_a_runtime_in_8_bits_gets_the_quantised_file_and_the_model_itself_runs_first() -> None:
    fake = FakeProcesses({"kintune": 1.0, "onnxruntime_int8": 2.0, "reference": 9.0})
    subject = msgspec.structs.replace(
        SUBJECT, quantised="int8.onnx", measures_errors=True, checked=("first.npz", "second.npz")
    )
    times = time_in_turns(subject, ["onnxruntime_int8"], CONDITIONS, (0,), lambda _: None, fake)
    assert fake.turns[:4] == ["reference", "reference", "kintune", "kintune"]
    reference, theirs = fake.contexts["reference"], fake.contexts["onnxruntime_int8"]
    assert (reference.rival, reference.exact, reference.inputs) == ("onnxruntime", True, "first.npz")
    assert (theirs.rival, theirs.exact, theirs.subject.quantised) == ("onnxruntime_int8", False, "int8.onnx")
    assert times["kintune"] == RuntimeTimes(
        (1.0,) * 6, norm_error=None, rounds_ms=(1.0,) * 3
    )  # these runtimes write no outputs
    assert "reference" in fake.closed
