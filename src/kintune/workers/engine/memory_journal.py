"""A journal that forgets: for jobs that are not worth keeping, and for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kintune.core.messages import Committed
from kintune.workers.engine.journal import Entry

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps all events of all jobs in lists."""

    def __init__(self) -> None:
        self._events: dict[str, list[Committed]] = {}

    def history(self, job: str) -> Sequence[Committed]:
        """All events of the job, by `seq`."""
        return tuple(self._events.get(job, ()))

    def active_seconds(self, job: str) -> float:
        """The time of the job's last event."""
        events = self._events.get(job)
        return events[-1].at if events else 0.0

    def commit(self, job: str, entry: Entry) -> Sequence[Committed]:
        """Append `entry`."""
        events = self._events.setdefault(job, [])
        values = {name: getattr(entry, name) for name in entry.__struct_fields__}
        events.append(Committed(seq=len(events), **values))
        return events[-1:]

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is committed within is forgotten when the block ends with an exception."""
        before = {job: len(events) for job, events in self._events.items()}
        try:
            yield
        except BaseException:
            for job, events in self._events.items():
                del events[before.get(job, 0) :]
            raise
