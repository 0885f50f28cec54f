"""Models trained from everything measured."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from kintune.core.knowledge import TrainedModel, TrainingConditions
from kintune.core.outcome import Outcome, Status
from kintune.errors import DamagedRecord, InputError
from kintune.records import Measurement, RunState, Store
from kintune.search.cost_model import Trees
from kintune.testing.records import DEVICE, add_workload, measurement
from kintune.testing.synthetic_space import MatMul
from kintune.transfer.choice import choose
from kintune.transfer.pretrain import LEAST_SAMPLES, pretrain, train_all
from tests.support.toy_records import CONDITIONS, ToyRecords

ONE, TWO = MatMul("one", 64, 128, 64), MatMul("two", 64, 256, 64)


def planted(store: Store, name: str, count: int = 40, **changes: object) -> list[Measurement]:
    """Measurements of a workload whose times follow from a feature."""
    workload = add_workload(store, name)
    made = []
    for index in range(count):
        features = np.array([index, index % 7, 1.0, 0.0], "<f4").tobytes()
        made.append(msgspec.structs.replace(measurement(workload, index, 10.0 + index), features=features, **changes))
    for each in made:
        store.measurements.add(each)
    return made


def conditions(**changes: str) -> TrainingConditions:
    return TrainingConditions(DEVICE.digest, "compiler-1", "1")._replace(**changes)


def test_a_later_job_is_offered_what_was_trained(records: ToyRecords) -> None:
    records.tune(ONE, TWO)
    (trained,) = pretrain(records.store)
    subjects = [MatMul("new", 64, 192, 64).subject]
    assert choose(records.store, CONDITIONS, subjects, "op").models == (trained.known.version,)
    kept = TrainedModel.from_bytes(records.store.blobs.get(trained.known.version.blob))
    assert {subject.workload for subject in kept.subjects} == {"one", "two"}
    assert (
        trained.known.version.rows
        == trained.samples
        == len([m for m in records.store.measurements.find() if m.features])
    )
    assert records.store.check() == []


def test_it_says_how_well_held_out_samples_are_ranked(records: ToyRecords) -> None:
    planted(records.store, "a")
    planted(records.store, "b")
    (trained,) = pretrain(records.store, "op")
    assert (trained.workloads, trained.samples) == (2, 80)
    assert trained.accuracy is not None
    assert trained.accuracy > 0.8
    assert trained.unseen is not None
    assert trained.unseen > 0.8
    assert Trees.from_bytes(trained.known.blob).predict(np.zeros((1, 4), np.float32)).shape == (1,)


def test_one_workload_has_no_others_to_be_judged_by(records: ToyRecords) -> None:
    planted(records.store, "a")
    assert pretrain(records.store)[0].unseen is None


def test_training_again_changes_nothing(records: ToyRecords) -> None:
    planted(records.store, "a")
    assert pretrain(records.store) == pretrain(records.store)
    assert records.store.counts().model_versions == 1


@given(st.integers(0, LEAST_SAMPLES + 2))
def test_too_few_samples_make_no_model(count: int) -> None:
    with Store.open(":memory:") as store:
        planted(store, "a", count)
        assert len(pretrain(store)) == (count >= LEAST_SAMPLES)


def test_conditions_are_kept_apart_and_the_last_used_come_last(records: ToyRecords) -> None:
    planted(records.store, "a")
    planted(records.store, "a", compiler="compiler-2")
    planted(records.store, "b", feature_version="2")
    found = [(trained.conditions, trained.workloads) for trained in pretrain(records.store)]
    assert found == [
        (conditions(), 1),
        (conditions(compiler="compiler-2"), 1),
        (conditions(feature_version="2"), 1),
    ]
    assert pretrain(records.store, device_type="0" * 32) == []
    assert len(pretrain(records.store, device_type=DEVICE.digest)) == 3


def test_families_are_those_of_the_algorithm(records: ToyRecords) -> None:
    records.tune(ONE, MatMul("other", 64, 64, 64, operator="conv2d"))
    assert [t.known.version.family for t in pretrain(records.store, "none")] == ["none"]
    assert {t.known.version.family[:9] for t in pretrain(records.store, "measured")} == {"measured:"}
    with pytest.raises(InputError, match="unknown family algorithm"):
        pretrain(records.store, "kin")


def test_doubtful_failures_are_no_samples(records: ToyRecords) -> None:
    """Of killed workers, and of runs that failed as a whole."""
    store = records.store
    first = planted(store, "a", 20)[0]
    store.runs.create("broken", key="k", model_name="m")
    store.runs.update("broken", state=RunState.FAILED)
    cases = [("killed by SIGKILL", None), ("no linker", "broken"), ("unrolled too far", None)]
    for index, (cause, run_id) in enumerate(cases, start=20):
        failed = measurement(first.candidate.workload, index, status=Status.BUILD_FAILED, cause=cause, run_id=run_id)
        store.measurements.add(msgspec.structs.replace(failed, features=first.features))
    (trained,) = train_all(store, conditions(), "op")
    assert trained.samples == 21


def test_confirmed_times_count(records: ToyRecords) -> None:
    """A lucky first time is not what the others are compared with."""
    store = records.store
    lucky = planted(store, "a", 20)[0]
    before = train_all(store, conditions(), "op")[0].known.version.blob
    store.measurements.confirm(lucky.device_type, lucky.compiler, lucky.candidate, Outcome(Status.OK, (25.0,)))
    assert train_all(store, conditions(), "op")[0].known.version.blob != before


def test_damage_is_named_or_left_out(records: ToyRecords) -> None:
    planted(records.store, "a")
    with records.store.transaction() as connection:
        connection.execute(text("UPDATE measurements SET cause = 'x' WHERE id = 3"))
    with pytest.raises(DamagedRecord, match="measurements 3"):
        pretrain(records.store)
    damage: list[object] = []
    (trained,) = pretrain(records.store, on_damage=damage.append)
    assert trained.samples == 39
    assert damage


def test_a_workload_that_never_ran_teaches_nothing(records: ToyRecords) -> None:
    planted(records.store, "a", outcome=Outcome(Status.BUILD_FAILED, (), "no linker"))
    assert pretrain(records.store) == []
