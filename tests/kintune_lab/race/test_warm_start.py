from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch, Tile, digest_of
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome, Status
from kintune.core.report import RunReport, StopReason
from kintune.core.version import FEATURES
from kintune.core.workload import Subgraph
from kintune.errors import EngineError, ModelError
from kintune.records import Measurement, Store
from kintune.tuning.front.request import TuneRequest
from kintune_lab.race import warm_start
from kintune_lab.race.warm_start import HITS, KIN, TeachingPlan, tune_teachers, warm_start_from
from kintune_lab.tuners.messages import TunerReady
from tests.support.reports import example_report

CURRICULUM = TeachingPlan(("zoo:resnet18", "zoo:mobilenet_v1_0.5"), 1.0, 1)


def ignore(_: str, __: float) -> None:
    pass


class Front:
    """Notes requests; fails or is interrupted at those of some numbers."""

    def __init__(self) -> None:
        self.requests: list[TuneRequest] = []
        self.failing: set[int] = set()
        self.interrupted: set[int] = set()
        self.seconds = 24.0

    def tune(self, request: TuneRequest, on_progress: Callable[..., None]) -> RunReport:
        number = len(self.requests)
        self.requests.append(request)
        Path(request.output).parent.joinpath("something").touch()
        if number in self.failing:
            raise ModelError("cannot be imported")
        reason = StopReason.INTERRUPTED if number in self.interrupted else StopReason.TIME
        return msgspec.structs.replace(example_report(), reason=reason, seconds=self.seconds)


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    front = Front()
    monkeypatch.setattr(warm_start.driver, "tune", front.tune)
    return front


def test_each_teacher_is_tuned_once_into_the_same_records(front: Front, tmp_path: Path) -> None:
    records = tune_teachers(CURRICULUM, tmp_path / "teaching", ignore)
    assert tune_teachers(CURRICULUM, tmp_path / "teaching", ignore) == records
    assert [request.model.name for request in front.requests] == ["resnet18", "mobilenet_v1_0.5"]
    assert {request.records for request in front.requests} == {str(records)}
    assert all(request.options.minutes == 1.0 and request.options.trials is None for request in front.requests)
    assert {path.suffix for path in (tmp_path / "teaching").iterdir()} == {".json"}  # the fake front writes no records


def test_another_curriculum_has_records_of_its_own(front: Front, tmp_path: Path) -> None:
    assert tune_teachers(CURRICULUM, tmp_path, ignore) != tune_teachers(
        msgspec.structs.replace(CURRICULUM, minutes=2.0), tmp_path, ignore
    )


def test_who_was_cut_off_goes_on_with_the_teacher_it_was_at(front: Front, tmp_path: Path) -> None:
    front.interrupted = {1, 2}
    for _ in front.interrupted:
        with pytest.raises(KeyboardInterrupt):
            tune_teachers(CURRICULUM, tmp_path, ignore)
    records = tune_teachers(CURRICULUM, tmp_path, ignore)
    assert [request.model.name for request in front.requests] == ["resnet18", *["mobilenet_v1_0.5"] * 3]
    assert [request.options.minutes for request in front.requests] == pytest.approx([1.0, 1.0, 0.6, 0.2])
    assert records.with_suffix(".json").read_bytes() == b"2"


def test_a_rest_of_nothing_is_not_tuned(front: Front, tmp_path: Path) -> None:
    front.interrupted, front.seconds = {0}, 61.0
    with pytest.raises(KeyboardInterrupt):
        tune_teachers(CURRICULUM, tmp_path, ignore)
    tune_teachers(CURRICULUM, tmp_path, ignore)
    assert [request.model.name for request in front.requests] == ["resnet18", "mobilenet_v1_0.5"]


def test_notes_that_only_count_teachers_are_gone_on_from(front: Front, tmp_path: Path) -> None:
    (tmp_path / f"{CURRICULUM.id}.json").write_bytes(b"1")
    tune_teachers(CURRICULUM, tmp_path, ignore)
    assert [request.options.minutes for request in front.requests] == [1.0]


def test_a_curriculum_without_files_is_called_as_ever() -> None:
    text = b'{"teachers":["zoo:resnet18","zoo:mobilenet_v1_0.5"],"minutes":1.0,"threads":1}'
    assert CURRICULUM.id == digest_of(text)[:12]
    assert msgspec.structs.replace(CURRICULUM, contents="d").id != CURRICULUM.id


def test_a_teacher_that_fails_fails_the_cell(front: Front, tmp_path: Path) -> None:
    front.failing = {0}
    with pytest.raises(ModelError):
        tune_teachers(CURRICULUM, tmp_path, ignore)
    assert not list(tmp_path.glob("*-work"))


DEVICE = DeviceType('{"kind": "llvm"}', "cpu", (), 1, "1-cold")


def record(store: Store, workload: str, count: int) -> None:
    """Measure `count` programs of a dense workload."""
    store.workloads.add(Subgraph(workload, workload, 1, 1e6, "dense", "matmul", True), b"module")
    sketch = Sketch(workload, f"sketch-{workload}", b"trace", (Tile(64, 2),))
    store.workloads.add_sketch(sketch)
    random = np.random.default_rng(0)
    for number in range(count):
        features = random.standard_normal(8).astype("<f4").tobytes()
        store.measurements.add(
            Measurement(
                device_type=store.devices.add(DEVICE),
                compiler="tvm",
                candidate=Candidate(workload, sketch.digest, ((number + 1, 64),)),
                outcome=Outcome(Status.OK, (10.0 + number,)),
                features=features,
                feature_version=FEATURES,
            )
        )


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records.sqlite"
    with Store.open(str(path)) as store:
        for workload in ("mine", "kin"):
            record(store, workload, 20)
    return path


READY = TunerReady("{}", (Subgraph("mine", "mine", 1, 1e6, "dense", "matmul", True),), {"mine": b"module"}, 1, 1)


def test_kin_know_nothing_of_the_network_itself(records: Path) -> None:
    known = warm_start_from(records, KIN, "op", 0, 1)(READY)
    assert known.suggestions == ()
    assert {program.subject.workload for program in known.knowledge.programs} == {"kin"}
    taught = {subject.workload for model in known.knowledge.models for subject in model.subjects}
    assert taught == {"kin"}


def test_hits_are_the_fastest_programs_of_the_network_itself(records: Path) -> None:
    known = warm_start_from(records, HITS, "op", 0, 1)(READY)
    assert [candidate.decisions[0][0] for candidate in known.suggestions] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {program.subject.workload for program in known.knowledge.programs} == {"kin"}


def test_records_without_a_measurement_teach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    Store.open(str(path)).close()
    with pytest.raises(EngineError, match="taught nothing"):
        warm_start_from(path, KIN, "op", 0, 1)(READY)
