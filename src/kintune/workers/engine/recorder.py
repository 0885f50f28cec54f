"""Commits how a job's items ended, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kintune.core.messages import Committed, ItemStatus
from kintune.errors import WireError
from kintune.wire.channel import tidy
from kintune.workers.engine.engine_context import EngineContext
from kintune.workers.engine.job_run import JobRun, StageRun
from kintune.workers.engine.journal import JournalEntry
from kintune.workers.engine.worker_connection import ItemEnd

__all__ = ["Recorder"]


class Recorder:
    """Holds how items ended until it is worth a commit.

    A commit costs milliseconds, in which a worker that waits for its next item does nothing, and one that times a
    program is disturbed.  What is held is lost with the front, like an item under way, and runs again.
    """

    def __init__(self, job: JobRun, context: EngineContext) -> None:
        self._job = job
        self._context = context
        self._held: list[tuple[JournalEntry, float]] = []

    @property
    def due(self) -> bool:
        """Whether enough is held, or has been held for long enough."""
        settings = self._context.settings
        if not self._held:
            return False
        return len(self._held) >= settings.hold_items or self._context.clock() - self._held[0][1] >= settings.hold_s

    def hold(self, run: StageRun, index: int, end: ItemEnd, late: Callable[[], None]) -> None:
        """An item of a stage has ended; `late` is called when nobody has committed for too long."""
        now, stage = self._context.clock(), run.work.stage
        at = self._job.at(now)
        entry = JournalEntry(
            at, stage.id, run.attempt, stage.kind, index, end.status, end.payload, end.cause, end.seconds
        )
        if not self._held:
            self._context.reactor.set_alarm(self._alarm, now + self._context.settings.longest_hold_s, late)
        self._held.append((entry, now))

    def commit(self) -> Sequence[Committed]:
        """Commit what is held, in the order in which it ended; returns the new events."""
        if not self._held:
            return ()
        self._context.reactor.clear_alarm(self._alarm)
        held, self._held = self._held, []
        with self._context.journal.together():
            events = [event for entry, _ in held for event in self._enter(entry)]
        self._job.remember(events)
        self._job.deaths = 0
        return events

    @property
    def _alarm(self) -> tuple[str, str]:
        return self._job.id, "held"

    def _enter(self, entry: JournalEntry) -> Sequence[Committed]:
        try:
            events = self._context.journal.commit(self._job.id, entry)
        except WireError as error:
            if entry.status is not ItemStatus.OK:
                raise
            cause = tidy(f"its answer is none: {error}")
            entry = JournalEntry(
                entry.at, entry.stage, entry.attempt, entry.kind, entry.index, ItemStatus.FAILED, b"", cause,
                entry.seconds,
            )  # fmt: skip
            events = self._context.journal.commit(self._job.id, entry)
        if entry.status is not ItemStatus.OK:
            where = f"{entry.stage}[{entry.index}]"
            self._context.log.write(f"job {self._job.id}", f"{where} {entry.status.value}: {entry.cause}")
        return events
