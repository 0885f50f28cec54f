"""The journal to which the engine commits each result before anybody learns of it; one that keeps it in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from kintune.core.messages import Committed, ItemStatus

__all__ = ["Journal", "JournalEntry", "MemoryJournal"]


class JournalEntry(msgspec.Struct, frozen=True):
    """How one item of a stage ended, to be committed as the next event of its job.

    `at` are the seconds of active run time since the job's first stage, those of earlier sessions included; `seconds`
    those that the item itself ran.
    """

    at: float
    stage: str
    attempt: int
    kind: str
    index: int
    status: ItemStatus
    payload: bytes
    cause: str = ""
    seconds: float = 0.0


class Journal(Protocol):
    """The committed events of jobs.  Only the front process writes it.

    Any exception of `commit` other than WireError ends the run: the engine kills all processes and lets it through.
    What was committed before stands.  The entry that failed was acknowledged to nobody, and its item runs again when
    the run is resumed.
    """

    def history(self, job: str) -> Sequence[Committed]:
        """All events of the job committed so far, by `seq` from 0 on without a gap."""

    def active_seconds(self, job: str) -> float:
        """The active run time of the job's earlier sessions, in seconds; 0 for a new job."""

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Commit `entry` durably, inside `together` when that ends; returns the new events, the entry's own first.

        Raises:
            WireError: the payload of an item that succeeded is not a valid answer.  Nothing is committed; the caller
                then commits the item as failed.
        """

    def together(self) -> AbstractContextManager[object]:
        """What is committed within becomes durable when the block ends, all or nothing.

        A WireError of `commit` that is caught within leaves the rest intact.  When the block ends with an exception, or
        its end raises one, this journal is no longer used; one that is opened again has no event of the block.
        """


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

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
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
