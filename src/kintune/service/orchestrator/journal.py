"""The journal of everything that the orchestrator runs: users' jobs, and the refreshing of family models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from kintune.core.knowledge import TrainingConditions
from kintune.core.messages import Committed, ItemStatus
from kintune.core.stage import StageKey
from kintune.records import Store
from kintune.service.orchestrator.events import EventTally
from kintune.service.orchestrator.refresher import Refresher
from kintune.transfer.refresh_job import FreshModel
from kintune.tuning.job.outcomes import MEASURING, profiled_of
from kintune.workers.engine.journal import Journal, JournalEntry

__all__ = ["OrchestratorJournal"]


class OrchestratorJournal:
    """Implements `kintune.workers.engine.journal.Journal`; what users' jobs measure is counted by the `refresher`.

    `conditions` says under which ones a job measures.  A refresh has no history: one that is interrupted begins anew,
    with more measurements.
    """

    def __init__(
        self, tuning: Journal, store: Store, refresher: Refresher, conditions: Callable[[str], TrainingConditions]
    ) -> None:
        self._tuning = tuning
        self._store = store
        self._refresher = refresher
        self._conditions = conditions
        self._refreshed: dict[str, int] = {}
        self._tallies: dict[StageKey, EventTally] = {}

    def history(self, job: str) -> Sequence[Committed]:
        """All events of the job committed so far."""
        return () if self._refresher.owns(job) else self._tuning.history(job)

    def active_seconds(self, job: str) -> float:
        """The active run time of the job's earlier sessions, in seconds."""
        return 0.0 if self._refresher.owns(job) else self._tuning.active_seconds(job)

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Commit an entry; that of a refresh keeps the models that it brings."""
        if self._refresher.owns(job):
            return (self._keep(job, entry),)
        events = self._tuning.commit(job, entry)
        if entry.kind in MEASURING:
            self._refresher.measured(self._conditions(job))
            outcome = profiled_of("", entry.status, entry.payload, entry.cause).outcome
            before = self._tallies.get((job, entry.stage), EventTally())
            self._tallies[job, entry.stage] = before.plus(EventTally(1, int(outcome.repeated > 0)))
        return events

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is committed within becomes one transaction."""
        with self._store.transaction(), self._tuning.together():
            yield

    def tally(self, stage: StageKey) -> EventTally:
        """What was measured in a stage since this was last asked."""
        return self._tallies.pop(stage, EventTally())

    def _keep(self, job: str, entry: JournalEntry) -> Committed:
        if entry.status is ItemStatus.OK:
            with self._store.transaction():
                for model in msgspec.msgpack.decode(entry.payload, type=list[FreshModel]):
                    self._store.blobs.put(model.blob)
                    self._store.models.add(model.version)
        number = self._refreshed.get(job, 0)
        self._refreshed[job] = number + 1
        values = {name: getattr(entry, name) for name in entry.__struct_fields__}
        return Committed(seq=number, **{**values, "payload": b""})
