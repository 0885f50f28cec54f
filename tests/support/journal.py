"""A journal in memory, which can be told to fail."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from kintune.core.messages import Committed
from kintune.workers.engine import journal as memory_journal
from kintune.workers.engine.journal import JournalEntry

__all__ = ["MemoryJournal"]


class MemoryJournal(memory_journal.MemoryJournal):
    """With `full_at`, the commit of that number (from 0 on, over all jobs) and all later ones fail as a full disk does,
    until `full_at` is set to None.
    """

    def __init__(self, full_at: int | None = None) -> None:
        super().__init__()
        self.full_at = full_at
        self.commits = 0

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Append `entry`.

        Raises:
            OSError: the disk is full, as it was told to be.
        """
        if self.full_at is not None and self.commits >= self.full_at:
            raise OSError(errno.ENOSPC, "no space left on the journal's device")
        self.commits += 1
        return super().commit(job, entry)
