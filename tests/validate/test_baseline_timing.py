"""Baselines are timed in turns before tuning; whoever cannot run is named, and keeps nobody else from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.core.stage_requests import BaselineItem, ValidationContext
from kintune.core.stage_results import BaselineLatencies
from kintune.errors import EngineError, InputError
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baseline_timing import (
    SECONDS_EACH,
    baseline_conditions,
    estimate_baselines_s,
    time_baselines,
    time_models,
)
from kintune.validate.baselines import BaselineModel, takes
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
