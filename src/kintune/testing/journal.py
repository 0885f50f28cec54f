"""A journal in memory, which can be told to fail."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from kintune.engine.journal import Entry
from kintune.wire.messages import Committed

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps all events of all jobs in lists.

    With `full_at`, the commit of that number (from 0 on, over all jobs) and all later ones fail as a full disk does,
    until `full_at` is set to None.
    """

    def __init__(self, full_at: int | None = None) -> None:
        self.full_at = full_at
        self.commits = 0
        self._events: dict[str, list[Committed]] = {}

    def history(self, job: str) -> Sequence[Committed]:
        """All events of the job, by `seq`."""
        return tuple(self._events.get(job, ()))

    def active_seconds(self, job: str) -> float:
        """The time of the job's last event."""
        events = self._events.get(job)
        return events[-1].at if events else 0.0

    def commit(self, job: str, entry: Entry) -> Sequence[Committed]:
        """Append `entry`.

        Raises:
            OSError: the disk is full, as it was told to be.
        """
        if self.full_at is not None and self.commits >= self.full_at:
            raise OSError(errno.ENOSPC, "no space left on the journal's device")
        self.commits += 1
        events = self._events.setdefault(job, [])
        events.append(
            Committed(
                seq=len(events),
                at=entry.at,
                stage=entry.stage,
                attempt=entry.attempt,
                kind=entry.kind,
                index=entry.index,
                status=entry.status,
                payload=entry.payload,
                cause=entry.cause,
                seconds=entry.seconds,
            )
        )
        return events[-1:]
