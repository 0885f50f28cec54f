"""The conformance suite of journals: the tests of a journal inherit `JournalSuite` and make and reopen journals."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from kintune.core.messages import Committed, ItemStatus
from kintune.workers.engine.journal import Journal, JournalEntry

__all__ = ["JournalSuite"]


class JournalSuite(ABC):
    """The contract as tests; `job` and `other_job` must be jobs whose events the journal accepts."""

    job: str = "job"
    other_job: str = "other"

    @abstractmethod
    def make(self) -> Journal:
        """Return an empty journal."""

    @abstractmethod
    def reopen(self, journal: Journal) -> Journal:
        """Return the journal as another process would find it if the writing one died now."""

    def entry(self, at: float = 0.0, index: int = 0, status: ItemStatus = ItemStatus.OK) -> JournalEntry:
        """Return an entry that the journal accepts."""
        payload = bytes([index]) * 10 if status is ItemStatus.OK else b""
        cause = "" if status is ItemStatus.OK else "killed by SIGSEGV"
        return JournalEntry(at, "stage", 0, "kind", index, status, payload, cause, seconds=0.25)

    def test_a_new_job_has_no_past(self) -> None:
        """Its history is empty, and its active time is 0."""
        journal = self.make()
        assert tuple(journal.history(self.job)) == ()
        assert journal.active_seconds(self.job) == 0.0

    def test_the_first_event_of_a_commit_is_the_entry(self) -> None:
        """Every field of the entry is in the event."""
        journal = self.make()
        entry = self.entry(at=1.5, index=3)
        first = journal.commit(self.job, entry)[0]
        assert first == Committed(0, 1.5, "stage", 0, "kind", 3, ItemStatus.OK, entry.payload, "", 0.25)

    def test_events_are_numbered_without_a_gap_and_kept_in_order(self) -> None:
        """History is what `commit` returned, of every status."""
        journal = self.make()
        events: list[Committed] = []
        for index, status in enumerate((*ItemStatus, *ItemStatus)):
            events += journal.commit(self.job, self.entry(float(index), index, status))
        assert [event.seq for event in events] == list(range(len(events)))
        assert list(journal.history(self.job)) == events

    def test_what_was_committed_survives_the_writer(self) -> None:
        """Another process finds the events, the active time and the next number."""
        journal = self.make()
        events = [*journal.commit(self.job, self.entry(1.0, 0)), *journal.commit(self.job, self.entry(2.0, 1))]
        again = self.reopen(journal)
        assert list(again.history(self.job)) == events
        assert again.active_seconds(self.job) >= 2.0
        more = again.commit(self.job, self.entry(3.0, 2))
        assert more[0].seq == len(events)

    def test_what_is_committed_together_is_there_afterwards(self) -> None:
        """Entries of several jobs are there as if they had been committed one by one."""
        journal = self.make()
        events = [*journal.commit(self.job, self.entry(0.0, 0))]
        with journal.together():
            events += journal.commit(self.job, self.entry(1.0, 1))
            journal.commit(self.other_job, self.entry(1.0, 0))
            events += journal.commit(self.job, self.entry(2.0, 2, ItemStatus.CRASHED))
        assert [event.seq for event in events] == list(range(len(events)))
        again = self.reopen(journal)
        assert list(again.history(self.job)) == events
        assert len(again.history(self.other_job)) == 1
        assert again.active_seconds(self.job) >= 2.0

    def test_what_is_committed_together_is_kept_whole_or_not_at_all(self) -> None:
        """After an exception in the block, the journal holds what it held before."""
        journal = self.make()
        before = list(journal.commit(self.job, self.entry(1.0, 0)))

        def fill_the_disk() -> None:
            with journal.together():
                journal.commit(self.job, self.entry(2.0, 1))
                journal.commit(self.other_job, self.entry(2.0, 0))
                raise OSError("the disk is full")

        with pytest.raises(OSError, match="full"):
            fill_the_disk()
        again = self.reopen(journal)
        assert list(again.history(self.job)) == before
        assert tuple(again.history(self.other_job)) == ()
        assert again.commit(self.job, self.entry(3.0, 1))[0].seq == len(before)

    def test_jobs_do_not_see_each_other(self) -> None:
        """Each job has its own history and numbers."""
        journal = self.make()
        journal.commit(self.job, self.entry())
        assert tuple(journal.history(self.other_job)) == ()
        assert journal.commit(self.other_job, self.entry())[0].seq == 0
