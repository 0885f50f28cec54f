from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from kintune.core.outcome import Status
from kintune.errors import RecordsError
from kintune.records import Damage, RunState, Store, repair
from kintune.records.schema import blobs, device_types, events, machine_facts, measurements, meta, runs
from kintune.testing.records import DEVICE, add_workload, event, measurement


@pytest.fixture
def store() -> Iterator[Store]:
    """Two workloads with two measurements each, of two runs with three events each."""
    with Store.open(":memory:") as store:
        workloads = [add_workload(store, name) for name in ("conv", "dense")]
        store.devices.note_fact("peak", DEVICE.digest, 300.0)
        for index, run in enumerate(("first", "second")):
            store.runs.create(run, key=run, model_name="model")
            for seq in range(3):
                store.events.append(run, event(seq))
            for workload in workloads:
                store.measurements.add(measurement(workload, index, 1.0, run_id=run))
        yield store


def damage(store: Store, table: object, which: object, **changed: object) -> None:
    with store.transaction() as connection:
        connection.execute(update(table).where(which).values(**changed))  # type: ignore[call-overload]
    assert store.check() != []


def test_sound_records_stay_as_they_are(store: Store) -> None:
    before = store.counts()
    assert store.remove_damage() == []
    assert store.counts() == before


def test_a_damaged_measurement_goes_alone(store: Store) -> None:
    damage(store, measurements, measurements.c.id == 2, cause="changed")
    assert store.remove_damage() == []
    assert [each.id for each in store.measurements.find()] == [1, 3, 4]
    assert store.counts().events == 6


def test_a_damaged_fact_goes_alone_whatever_its_name(store: Store) -> None:
    for name in ("a/b", "a/b/c"):
        store.devices.note_fact(name, DEVICE.digest, 1.0)
    damage(store, machine_facts, machine_facts.c.key == "a/b", json="2.0")
    assert store.remove_damage() == []
    with store.snapshot() as connection:
        assert set(connection.execute(select(machine_facts.c.key)).scalars()) == {"peak", "a/b/c"}


def test_a_run_with_a_damaged_event_is_abandoned(store: Store) -> None:
    damage(store, events, (events.c.run_id == "first") & (events.c.seq == 1), at=7.0)
    assert store.remove_damage() == []
    assert store.runs.get("first").state is RunState.ABANDONED
    assert store.events.history("first") == ()
    assert store.runs.find_unfinished("first") is None
    assert len(store.events.history("second")) == 3
    assert len(store.measurements.find(run_id="first")) == 2


def test_a_damaged_run_is_not_mended_for_one_of_its_events(store: Store) -> None:
    damage(store, events, (events.c.run_id == "first") & (events.c.seq == 1), at=7.0)
    damage(store, runs, runs.c.run_id == "first", spec=b"changed")
    with store.transaction() as connection:
        repair._abandon(connection, "first")
        repair._abandon(connection, "no such run")
    assert [(each.table, each.id) for each in store.check()] == [("runs", "first")]
    assert store.remove_damage() == []
    assert [run.run_id for run in store.runs.list()] == ["second"]


def test_a_run_that_is_over_stays_so_without_its_events(store: Store) -> None:
    store.runs.update("first", state=RunState.FINISHED)
    damage(store, events, (events.c.run_id == "first") & (events.c.seq == 1), at=7.0)
    assert store.remove_damage() == []
    assert store.runs.get("first").state is RunState.FINISHED
    assert store.counts().events == 3


def test_measurements_outlive_a_damaged_run(store: Store) -> None:
    damage(store, runs, runs.c.run_id == "first", spec=b"changed")
    damage(store, measurements, measurements.c.id == 1, cause="changed")
    assert store.remove_damage() == []
    assert [run.run_id for run in store.runs.list()] == ["second"]
    assert [(each.id, each.run_id) for each in store.measurements.find()] == [(2, None), (3, "second"), (4, "second")]
    assert store.counts().events == 3


def test_failures_of_a_damaged_run_go_with_it(store: Store) -> None:
    """Nobody knows any more whether all of it failed, which would say nothing of the candidates."""
    workload = store.workloads.list()[0].digest
    store.measurements.add(measurement(workload, 7, status=Status.BUILD_FAILED, cause="no linker", run_id="first"))
    damage(store, runs, runs.c.run_id == "first", spec=b"changed")
    assert store.remove_damage() == []
    assert [each.id for each in store.measurements.find()] == [1, 2, 3, 4]


def test_what_names_rows_that_are_not_there_goes(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as store:
        kept, torn = add_workload(store, "conv"), add_workload(store, "dense")
        store.measurements.add(measurement(kept, 1, 1.0))
        store.measurements.add(measurement(torn, 1, 1.0))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM workloads WHERE digest = ?", (torn,))
        connection.commit()
    with pytest.raises(RecordsError, match="damaged"):
        Store.open(path)
    with Store.open(path, verify=False) as store:
        assert store.remove_damage() == []
    with Store.open(path) as store:
        assert [each.candidate.workload for each in store.measurements.find()] == [kept]


def test_a_damaged_program_goes_with_all_that_depends_on_it(store: Store) -> None:
    conv = next(workload for workload in store.workloads.list() if workload.name == "conv")
    damage(store, blobs, blobs.c.digest == conv.blob, bytes=b"changed")
    assert store.remove_damage() == []
    assert [workload.name for workload in store.workloads.list()] == ["dense"]
    assert len(store.measurements.find()) == 2
    add_workload(store, "conv")
    assert store.workloads.module(conv.digest).startswith(b"module of conv")


def test_a_damaged_device_type_takes_its_measurements_along(store: Store) -> None:
    damage(store, device_types, device_types.c.digest == DEVICE.digest, json="{}")
    damage(store, machine_facts, machine_facts.c.key == "peak", json="1")
    assert store.remove_damage() == []
    assert store.measurements.find() == []
    assert store.devices.fact("peak", DEVICE.digest) is None
    assert len(store.runs.list()) == 2


def test_what_cannot_be_helped_is_told(store: Store) -> None:
    damage(store, meta, meta.c.key == "format", value="changed")
    assert store.remove_damage() == [Damage("meta", "format", "its content does not match its checksum")]
