"""A journal of jobs that come and go: it forgets those that are over, and sees that nothing is committed twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from kintune.core.messages import Committed, ItemStatus
from kintune.workers.engine.journal import JournalEntry


class ForgetfulJournal:
    """Implements `kintune.workers.engine.journal.Journal`; `endings` counts items by how they ended."""

    def __init__(self) -> None:
        self.endings = dict.fromkeys(ItemStatus, 0)
        self._events: dict[str, list[Committed]] = {}

    def history(self, job: str) -> Sequence[Committed]:
        """All events of the job, by `seq`."""
        return tuple(self._events.get(job, ()))

    def active_seconds(self, job: str) -> float:
        """No job has an earlier session."""
        return 0.0

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Append `entry`.  Raises AssertionError where its item has been committed before."""
        events = self._events.setdefault(job, [])
        twice = any((event.stage, event.index) == (entry.stage, entry.index) for event in events)
        assert not twice, f"{job}: item {entry.index} of {entry.stage} is committed twice"
        values = {name: getattr(entry, name) for name in entry.__struct_fields__}
        events.append(Committed(seq=len(events), **values))
        self.endings[entry.status] += 1
        return events[-1:]

    def together(self) -> AbstractContextManager[None]:
        """Nothing is kept, so nothing has to be kept together."""
        return nullcontext()

    def forget(self, job: str) -> int:
        """The job is over; how many items it had."""
        return len(self._events.pop(job, ()))
