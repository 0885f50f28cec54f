from __future__ import annotations

import msgspec
import pytest

from kintune.engine.command import Command
from kintune.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.engine.journal import Entry
from kintune.engine.memory_journal import MemoryJournal
from kintune.job.payloads import StageName
from kintune.knowledge.conditions import Conditions
from kintune.knowledge.refresh_job import FreshModel, RefreshSpec
from kintune.measure.protocol import DeviceType
from kintune.records import Store
from kintune.search.model_version import ModelVersion
from kintune.service.orchestrator.ledger import Ledger
from kintune.service.orchestrator.refresher import Refresher
from kintune.space.candidate import digest_of
from kintune.wire.messages import ItemStatus

TYPE = DeviceType("{}", "cpu", (), 1, "1 cold")


class Play:
    """A refresher after every third measurement, and what it has launched and complained of."""

    def __init__(self) -> None:
        self.launched: list[JobLaunch] = []
        self.complaints: list[str] = []
        self.refresher = Refresher(
            "records.sqlite",
            Conditions(TYPE.digest, "c1", "f1"),
            3,
            Command(("train",)),
            self.launched.append,
            self.complaints.append,
        )


@pytest.fixture
def play() -> Play:
    return Play()


def entry(kind: str, payload: bytes = b"", status: ItemStatus = ItemStatus.OK) -> Entry:
    return Entry(1.0, f"{kind}-0", 0, kind, 0, status, payload)


def test_models_are_refreshed_after_so_many_measurements(play: Play) -> None:
    for _ in range(2):
        play.refresher.measured()
    assert play.launched == []
    play.refresher.measured()
    (launch,) = play.launched
    assert play.refresher.owns(launch.job)
    assert msgspec.msgpack.decode(launch.spec, type=RefreshSpec).conditions == Conditions(TYPE.digest, "c1", "f1")


def test_one_at_a_time(play: Play) -> None:
    for _ in range(9):
        play.refresher.measured()
    assert len(play.launched) == 1
    play.refresher.ended(JobEnd(JobEnding.FINISHED))
    play.refresher.measured()
    assert len(play.launched) == 2
    assert play.launched[0].job != play.launched[1].job


def test_one_that_fails_is_told_of_and_tried_again_later(play: Play) -> None:
    for _ in range(3):
        play.refresher.measured()
    play.refresher.ended(JobEnd(JobEnding.FAILED, cause="out of memory"))
    assert play.complaints == ["out of memory"]
    for _ in range(3):
        play.refresher.measured()
    assert len(play.launched) == 2


def test_the_ledger_counts_what_people_s_jobs_measure(play: Play) -> None:
    with Store.open(":memory:") as store:
        ledger = Ledger(MemoryJournal(), store, play.refresher)
        for kind in (StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.PROFILE, StageName.CONFIRM):
            assert len(ledger.commit("job", entry(kind))) == 1
        assert len(ledger.history("job")) == 5
    assert len(play.launched) == 1


def test_the_ledger_keeps_the_models_of_a_refresh(play: Play) -> None:
    blob = b"trees"
    version = ModelVersion(digest_of(blob), "op:matmul", TYPE.digest, "f1", 40)
    with Store.open(":memory:") as store:
        store.devices.add(TYPE)
        ledger = Ledger(MemoryJournal(), store, play.refresher)
        brought = msgspec.msgpack.encode([FreshModel(version, blob)])
        failed = ledger.commit("refresh-1", entry("train", b"", ItemStatus.FAILED))
        (kept,) = ledger.commit("refresh-1", entry("train", brought))
        assert (failed[0].seq, kept.seq, kept.payload) == (0, 1, b"")
        assert [record.version for record in store.models.find(TYPE.digest)] == [version]
        assert store.blobs.get(version.blob) == blob
        assert ledger.history("refresh-1") == ()
