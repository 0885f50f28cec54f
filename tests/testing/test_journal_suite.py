import pytest

from kintune.testing.journal_suite import JournalSuite
from kintune.workers.engine.journal import Journal
from tests.support.journal import MemoryJournal


class TestMemoryJournal(JournalSuite):
    def make(self) -> Journal:
        return MemoryJournal()

    def reopen(self, journal: Journal) -> Journal:
        return journal

    def test_a_full_disk_loses_nothing_that_was_committed(self) -> None:
        journal = MemoryJournal(full_at=1)
        first = list(journal.commit(self.job, self.entry()))
        with pytest.raises(OSError, match="no space left"):
            journal.commit(self.job, self.entry(index=1))
        assert list(journal.history(self.job)) == first
        journal.full_at = None
        assert journal.commit(self.job, self.entry(index=1))[0].seq == 1
