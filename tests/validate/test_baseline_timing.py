"""Baselines are timed in turns before tuning; whoever cannot run is named, and keeps nobody else from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.model import Constant, Tensor
from kintune.core.stage_requests import BaselineItem, ValidationContext
from kintune.core.stage_results import BaselineLatencies
from kintune.errors import EngineError, InputError
from kintune.validate import baseline_timing
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baseline_timing import (
    SECONDS_EACH,
    baseline_conditions,
    estimate_baselines_s,
    time_baselines,
    time_models,
)
from kintune.validate.baselines import BaselineModel, takes
from kintune.wire.staging import STAGING_VARIABLE, locate
from kintune.wire.worker_client import WorkerRefused

ITEM = BaselineItem(
    ((Tensor("x", (2, 3), "float32"),),), onnx="model.onnx", compare=("onnxruntime", "openvino", "torch")
)
BOTH = (*ITEM.combinations, (Tensor("x", (4, 3), "float32"),))
QUICK = ValidationContext(1, rounds=2, min_rounds=1, runs=3, race_seconds=1.0)


class Scripted:
    """A process whose runs take 2 ms with 2 rows and 4 ms with 4; it fails as its name says."""

    def __init__(self, name: str, context: BaselineContext, troubles: dict[str, Exception]) -> None:
        assert context.rival == name
        self.name = name
        self.context = context
        self._troubles = troubles
        self.is_closed = False

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        del seconds
        if (trouble := self._troubles.get(f"{self.name} prepare")) is not None:
            raise trouble

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        del seconds
        rows = self.context.tensors[0].shape[0]
        if (trouble := self._troubles.get(f"{self.name} turn {rows}")) is not None:
            raise trouble
        return (float(rows),) * turn.runs

    def close(self) -> None:
        self.is_closed = True


class Playing:
    """Starts scripted processes, and keeps them."""

    def __init__(self, **troubles: Exception) -> None:
        self.started: list[Scripted] = []
        self._troubles = {name.replace("_", " "): trouble for name, trouble in troubles.items()}

    def __call__(self, name: str, context: BaselineContext) -> Scripted:
        self.started.append(Scripted(name, context, self._troubles))
        return self.started[-1]

    def time(self, item: BaselineItem = ITEM, conditions: ValidationContext = QUICK) -> BaselineLatencies:
        clock: Callable[[], float] = lambda: 0.0  # noqa: E731
        found = time_models(conditions, item, clock, self)  # type: ignore[arg-type]
        assert all(process.is_closed for process in self.started)
        return found


def test_files_are_found_where_they_are_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constant = Constant("float32", (1,), "d", path="w.bin")
    item = msgspec.structs.replace(ITEM, exported="m.pt2", inputs=("x.npz",), constants={"w": constant})
    nothing = BaselineItem(ITEM.combinations)
    asked: list[BaselineItem] = []
    monkeypatch.setattr(baseline_timing, "time_models", lambda _, item: asked.append(item) or BaselineLatencies(()))
    for staging in (None, str(tmp_path)):
        if staging is not None:
            monkeypatch.setenv(STAGING_VARIABLE, staging)
        for each in (item, nothing):
            time_baselines(msgspec.msgpack.encode(QUICK), msgspec.msgpack.encode(each))
    plain, _, staged, still = asked
    assert (plain, still) == (item, nothing)
    paths = [staged.onnx, staged.exported, *staged.inputs, staged.constants["w"].path]
    assert paths == [locate(path) for path in ("model.onnx", "m.pt2", "x.npz", "w.bin")]
    assert all(str(path).startswith(str(tmp_path)) for path in paths)


def test_the_conditions_are_those_of_a_short_look() -> None:
    found = baseline_conditions(3)
    assert (found.threads, found.min_rounds, found.race_seconds, found.prepare_seconds) == (3, 1, SECONDS_EACH, 60.0)
    assert found.rounds == 30


def test_each_baseline_adds_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[ValidationContext] = []
    plain = baseline_timing.time_interleaved

    def noted(processes: Any, conditions: ValidationContext, clock: Any) -> Any:
        shared.append(conditions)
        return plain(processes, conditions, clock)

    monkeypatch.setattr(baseline_timing, "time_interleaved", noted)
    Playing().time()
    assert [each.race_seconds for each in shared] == [2.0 * QUICK.race_seconds]


def test_runtimes_of_the_model_take_turns() -> None:
    playing = Playing()
    found = playing.time()
    assert found == BaselineLatencies(({"onnxruntime": (2.0,) * 6, "openvino": (2.0,) * 6},))
    assert [process.name for process in playing.started] == ["onnxruntime", "openvino"]  # it is no exported program
    assert found.together_ms() == {"onnxruntime": 2.0, "openvino": 2.0}


def test_whoever_fails_is_named_and_the_others_are_timed() -> None:
    found = Playing(openvino_prepare=EngineError("took too long and was stopped")).time()
    assert found == BaselineLatencies(
        ({"onnxruntime": (2.0,) * 6},), failures={"openvino": "took too long and was stopped"}
    )
    found = Playing(onnxruntime_turn_2=EngineError("killed by SIGSEGV")).time()
    assert found.failures == {"onnxruntime": "killed by SIGSEGV"}
    assert set(found.each[0]) == {"openvino"}


def test_whoever_is_not_installed_has_not_failed() -> None:
    found = Playing(openvino_prepare=WorkerRefused("not installed: pip install it", wrong_input=True)).time()
    assert (found.failures, found.absent) == ({}, {"openvino": "not installed: pip install it"})


def test_each_combination_of_shapes_is_timed_by_itself() -> None:
    playing = Playing(openvino_turn_4=EngineError("killed by SIGSEGV"))
    found = playing.time(msgspec.structs.replace(ITEM, combinations=BOTH))
    assert found.quartiles_ms() == ({"onnxruntime": 2.0, "openvino": 2.0}, {"onnxruntime": 4.0})
    assert found.together_ms() == {"onnxruntime": 6.0}
    assert found.failures == {"openvino": "killed by SIGSEGV (with x=4x3)"}


def test_the_users_inputs_are_used_where_they_fit(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    np.savez(path, x=np.zeros((4, 3), "float32"))
    playing = Playing()
    playing.time(msgspec.structs.replace(ITEM, combinations=BOTH, inputs=(path,), compare=("onnxruntime",)))
    assert [process.context.inputs for process in playing.started] == [None, path]
    np.savez(path, x=np.zeros((5, 3), "float32"))
    with pytest.raises(InputError, match=r"x\.npz"):
        Playing().time(msgspec.structs.replace(ITEM, inputs=(path,)))


def test_an_exported_program_is_for_pytorch() -> None:
    playing = Playing()
    playing.time(msgspec.structs.replace(ITEM, onnx=None, exported="model.pt2"))
    assert [process.name for process in playing.started] == ["torch"]
    assert takes("kintune", BaselineModel(executable="model.kt"))
    assert not takes("kintune", BaselineModel(onnx="model.onnx"))


def test_the_time_is_bounded() -> None:
    assert baseline_conditions(2).race_seconds == SECONDS_EACH
    assert baseline_conditions(2, minutes=60.0).race_seconds == SECONDS_EACH
    assert baseline_conditions(2, minutes=0.5).race_seconds == pytest.approx(1.5)
    assert baseline_conditions(2, minutes=0.01).race_seconds == pytest.approx(0.5)
    assert baseline_conditions(2, combinations=16).race_seconds == pytest.approx(0.5)
    assert estimate_baselines_s(baseline_conditions(2), 2) < 10.0
    three = baseline_conditions(2, combinations=3)
    assert estimate_baselines_s(three, 2, 3) == pytest.approx(3 * 2 * (1.5 + 2.0))


def test_nobody_to_time_is_no_result() -> None:
    assert Playing().time(msgspec.structs.replace(ITEM, compare=())) == BaselineLatencies(({},))


def test_what_a_worker_is_sent_is_what_it_answers() -> None:
    nobody = msgspec.structs.replace(ITEM, compare=())
    answer = time_baselines(msgspec.msgpack.encode(QUICK), msgspec.msgpack.encode(nobody))
    assert msgspec.msgpack.decode(answer, type=BaselineLatencies) == BaselineLatencies(({},))


def test_a_real_model_is_timed(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    path = tmp_path / "model.onnx"
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    item = msgspec.structs.replace(ITEM, onnx=str(path), compare=("onnxruntime",))
    found = time_models(QUICK, item)
    assert len(found.each[0]["onnxruntime"]) >= 3
    assert (found.failures, found.absent) == ({}, {})
