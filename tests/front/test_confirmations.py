"""Outcomes of finalists, joined over the heats of a run."""

from __future__ import annotations

import msgspec
import pytest

from kintune.engine.journal import Entry
from kintune.front.confirmations import Confirmations
from kintune.front.journal import TuningJournal
from kintune.job.payloads import Profiled, StageName
from kintune.measure.outcome import Outcome, Status
from kintune.measure.requests import BuildItem
from kintune.space.candidate import Candidate
from kintune.testing.toy_desk import Desk, item_of, preparation, work_of
from kintune.testing.toy_tools import toy_space, toy_spec
from kintune.wire.messages import ItemStatus


@pytest.fixture
def finalist() -> Candidate:
    return toy_space().rules("w0", 1)[0]


@pytest.fixture
def journal(desk: Desk, finalist: Candidate) -> TuningJournal:
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    journal.watch("run", work_of(StageName.BUILD, BuildItem(finalist)))
    confirm(journal, finalist, "first", 4.0)
    return journal


def confirm(journal: TuningJournal, finalist: Candidate, stage: str, time_us: float) -> None:
    work = work_of(StageName.CONFIRM, item_of(StageName.CONFIRM, finalist))
    journal.watch("run", msgspec.structs.replace(work, stage=msgspec.structs.replace(work.stage, id=stage)))
    payload = msgspec.msgpack.encode(Outcome(Status.OK, (time_us,)))
    journal.commit("run", Entry(time_us, stage, 0, StageName.CONFIRM, 0, ItemStatus.OK, payload))


def confirmed(desk: Desk) -> Outcome | None:
    (measurement,) = desk.store.measurements.find()
    return measurement.confirmed


def test_records_keep_the_times_of_all_heats(desk: Desk, journal: TuningJournal, finalist: Candidate) -> None:
    assert confirmed(desk) == Outcome(Status.OK, (4.0,))
    confirm(journal, finalist, "second", 6.0)
    assert confirmed(desk) == Outcome(Status.OK, (4.0, 6.0))


@pytest.mark.usefixtures("journal")
def test_who_goes_on_with_a_run_adds_to_what_was_confirmed(desk: Desk, finalist: Candidate) -> None:
    successor = desk.journal(toy_spec())
    successor.history("run")
    successor.watch("run", work_of(StageName.BUILD, BuildItem(finalist)))
    confirm(successor, finalist, "second", 6.0)
    assert confirmed(desk) == Outcome(Status.OK, (4.0, 6.0))


@pytest.mark.usefixtures("journal")
def test_what_was_not_written_down_is_forgotten(desk: Desk, finalist: Candidate) -> None:
    confirmations = Confirmations(desk.store, "run")
    for _ in range(2):
        joined = confirmations.add(Profiled(finalist.digest, Outcome(Status.OK, (5.0,))))
        assert joined == Outcome(Status.OK, (4.0, 5.0))
        confirmations.forget()


def test_another_runs_heats_are_not_joined(desk: Desk, finalist: Candidate, journal: TuningJournal) -> None:
    del journal
    other = Confirmations(desk.store, "another")
    assert other.add(Profiled(finalist.digest, Outcome(Status.OK, (5.0,)))) == Outcome(Status.OK, (5.0,))
