from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from kintune.core.candidate import digest_of
from kintune.core.knowledge import ModelVersion, TrainingConditions
from kintune.core.measurement_protocol import DeviceType
from kintune.core.messages import ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_results import StageName
from kintune.records import Store
from kintune.service.orchestrator.events import EventTally
from kintune.service.orchestrator.journal import OrchestratorJournal
from kintune.service.orchestrator.refresher import Refresher
from kintune.testing.journal_suite import JournalSuite
from kintune.transfer.refresh_job import FreshModel
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.journal import JournalEntry, MemoryJournal
from kintune.workers.engine.process import Command

TYPE = DeviceType("{}", "cpu", (), 1, "1 cold")


class Books:
    """A ledger whose refresher wants to refresh after every third measurement, and what that has launched."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.launched: list[JobLaunch] = []
        conditions, train = TrainingConditions(TYPE.digest, "c1", "f1"), Command(("train",))
        refresher = Refresher("records.sqlite", 3, train, None, self.launched.append, lambda cause: None)
        self.ledger = OrchestratorJournal(MemoryJournal(), store, refresher, lambda job: conditions)


@pytest.fixture
def books() -> Iterator[Books]:
    with Store.open(":memory:") as store:
        store.devices.add(TYPE)
        yield Books(store)


class TestContract(JournalSuite):
    @pytest.fixture(autouse=True)
    def _books(self, books: Books) -> None:
        self.books = books

    def make(self) -> OrchestratorJournal:
        return self.books.ledger

    def reopen(self, journal: object) -> OrchestratorJournal:
        assert journal is self.books.ledger
        return self.books.ledger


def entry(kind: str, payload: bytes = b"", status: ItemStatus = ItemStatus.OK) -> JournalEntry:
    return JournalEntry(1.0, f"{kind}-0", 0, kind, 0, status, payload)


def timed(kind: StageName, repeated: int = 0) -> JournalEntry:
    return entry(kind, msgspec.msgpack.encode(Outcome(Status.OK, (1.0,), repeated=repeated)))


def test_what_jobs_measure_is_what_family_models_are_refreshed_after(books: Books) -> None:
    for each in (
        *(entry(StageName.SELECT), entry(StageName.BUILD)),
        *(timed(StageName.PROFILE), timed(StageName.PROFILE), timed(StageName.CONFIRM)),
    ):
        assert len(books.ledger.commit("job", each)) == 1
    assert len(books.ledger.history("job")) == 5
    assert len(books.launched) == 1


def test_the_models_of_a_refresh_are_kept(books: Books) -> None:
    blob = b"trees"
    version = ModelVersion(digest_of(blob), "op:matmul", TYPE.digest, "f1", 40)
    failed = books.ledger.commit("refresh-1", entry("train", b"", ItemStatus.FAILED))
    (kept,) = books.ledger.commit("refresh-1", entry("train", msgspec.msgpack.encode([FreshModel(version, blob)])))
    assert (failed[0].seq, kept.seq, kept.payload) == (0, 1, b"")
    assert [record.version for record in books.store.models.find(TYPE.digest)] == [version]
    assert books.store.blobs.get(version.blob) == blob
    assert books.ledger.history("refresh-1") == ()


def test_what_was_measured_is_counted_by_stage_and_told_once(books: Books) -> None:
    for repeated in (0, 2, 1):
        books.ledger.commit("a", timed(StageName.PROFILE, repeated))
    books.ledger.commit("b", timed(StageName.PROFILE))
    books.ledger.commit("a", entry(StageName.BUILD))
    assert books.ledger.tally(("a", "profile-0")) == EventTally(3, 2)
    assert books.ledger.tally(("b", "profile-0")) == EventTally(1, 0)
    assert books.ledger.tally(("a", "profile-0")) == books.ledger.tally(("a", "build-0")) == EventTally()


def test_a_candidate_that_killed_its_worker_was_measured_too(books: Books) -> None:
    books.ledger.commit("a", entry(StageName.PROFILE, status=ItemStatus.CRASHED))
    assert books.ledger.tally(("a", "profile-0")) == EventTally(1, 0)
