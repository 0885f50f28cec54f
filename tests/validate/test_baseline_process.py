import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.errors import EngineError
from kintune.validate import baseline_process
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import BaselineModel


def test_a_process_has_as_many_threads_as_its_context_says(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr(baseline_process, "WorkerProcess", lambda *_, environment: started.append(environment))
    made = BaselineProcess("tuned", BaselineContext("", BaselineModel(), TENSORS, None, 0, 3, (0,)))
    assert started == [{"TVM_NUM_THREADS": "3", "OMP_NUM_THREADS": "3"}]
    assert not made.met_denormals


def test_greeting_and_preparing_share_their_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [1000.0], []

    class Worker:
        def greet(self, seconds: float) -> None:
            given.append(seconds)
            now[0] += 4.0

        def order(self, order: bytes, seconds: float) -> bytes:
            given.append(seconds)
            return b""

        def begin(self, *_: object) -> None:
            """Takes no time."""

        resume = stop = begin

    monkeypatch.setattr(baseline_process, "WorkerProcess", lambda *_, **__: Worker())
    monkeypatch.setattr(baseline_process.time, "monotonic", lambda: now[0])
    BaselineProcess("tuned", BaselineContext("", BaselineModel(), TENSORS, None, 0, 3, (0,))).prepare(10.0)
    assert given == [10.0, 6.0]


TENSORS = (Tensor("x", (2, 3), "float32"),)
FAKE = """
import os, signal
class SessionOptions:
    def add_free_dimension_override_by_name(self, name, extent): pass
class ExecutionMode: ORT_SEQUENTIAL = 0
class GraphOptimizationLevel: ORT_ENABLE_ALL, ORT_DISABLE_ALL = 99, 0
class InferenceSession:
    def __init__(self, path, options, providers):
        self.threads = options.intra_op_num_threads
        {prepare}
    def run(self, names, inputs):
        {run}
"""

Start = Callable[..., BaselineProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start processes whose onnxruntime is a fake with the given bodies."""
    import onnx
    from onnx import helper

    onnx.save(helper.make_model(helper.make_graph([], "empty", [], [])), tmp_path / "empty.onnx")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def started(prepare: str = "pass", run: str = "return [inputs['x'] * 2]", onnx: bool = True) -> BaselineProcess:
        (tmp_path / "onnxruntime.py").write_text(FAKE.format(prepare=prepare, run=run))
        subject = BaselineModel(onnx=str(tmp_path / "empty.onnx") if onnx else None)
        cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
        return BaselineProcess("onnxruntime", BaselineContext("onnxruntime", subject, TENSORS, None, 0, 1, cores))

    return started


def test_it_runs_and_writes_its_outputs(start: Start, tmp_path: Path) -> None:
    from kintune.runtime.inputs import draw_inputs

    with start() as process:
        process.prepare(60)
        times = process.turn(BaselineTurn(3, 60.0, outputs=str(tmp_path / "y.npz")), 60)
    assert len(times) == 3
    assert np.array_equal(np.load(tmp_path / "y.npz")["0"], draw_inputs(TENSORS)["x"] * 2)


def test_it_is_stopped_between_its_turns(start: Start) -> None:
    with start() as process:
        process.prepare(60)
        assert state(process) == "T"
        assert len(process.turn(BaselineTurn(1, 0.0, warm_seconds=1e-9), 60)) == 1
        assert state(process) == "T"


@pytest.mark.parametrize("where", ["prepare", "run"])
def test_one_that_fails_is_stopped_as_well(start: Start, where: str) -> None:
    """Its threads may spin, and others are timed before it is closed."""
    with start(**{where: "raise RuntimeError('bad node')"}) as process:
        with pytest.raises(EngineError, match="bad node"):
            prepare_and_run(process)
        assert state(process) == "T"


def test_it_keeps_to_its_cores_and_threads(start: Start) -> None:
    body = "import os; return [__import__('numpy').array([self.threads, len(os.sched_getaffinity(0))] )]"
    with start(run=body) as process:
        process.prepare(60)
        process.turn(BaselineTurn(1, 0.0, outputs=str(output_path(process))), 60)
    assert np.load(output_path(process))["0"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("bodies", "cause"),
    [
        ({"onnx": False}, "the model is not an ONNX file"),
        ({"prepare": "raise RuntimeError('bad node')"}, "RuntimeError: bad node"),
        ({"prepare": "os.kill(os.getpid(), signal.SIGSEGV)"}, "killed by SIGSEGV"),
        ({"prepare": "os._exit(7)"}, "exited with code 7"),
        ({"run": "raise MemoryError()"}, "MemoryError"),
        ({"run": "os.abort()"}, "killed by SIGABRT"),
    ],
)
def test_each_failure_has_its_cause(start: Start, bodies: dict[str, str], cause: str) -> None:
    with start(**bodies) as process:
        with pytest.raises(EngineError) as caught:
            prepare_and_run(process)
        assert str(caught.value) == cause
    assert gone(process)


@pytest.mark.parametrize("where", ["prepare", "run"])
def test_one_that_hangs_is_given_up(start: Start, where: str) -> None:
    seconds = {"prepare": 60.0, "run": 60.0, where: 0.3}
    with start(**{where: "signal.pause()"}) as process, pytest.raises(EngineError, match="took too long"):
        prepare_and_run(process, seconds["prepare"], seconds["run"])
    assert gone(process)


def prepare_and_run(process: BaselineProcess, prepare_seconds: float = 60.0, turn_seconds: float = 60.0) -> None:
    process.prepare(prepare_seconds)
    process.turn(BaselineTurn(1, 0.0), turn_seconds)


def output_path(process: BaselineProcess) -> Path:
    return Path(str(process._context.subject.onnx)).with_name("outputs.npz")


def state(process: BaselineProcess) -> str:
    return Path(f"/proc/{process._worker.pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(process: BaselineProcess) -> bool:
    return not Path(f"/proc/{process._worker.pid}").exists()
