"""The journal of tuning jobs: commits the results of stages to the records before jobs are told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from kintune.core.config import JobSpec
from kintune.core.knowledge import TrainingConditions
from kintune.core.messages import Committed, Work
from kintune.errors import OrderError
from kintune.records import Store
from kintune.tuning.front.run_log import RunLog
from kintune.workers.engine.journal import JournalEntry

__all__ = ["TuningJournal"]


class TuningJournal:
    """Implements `workers.engine.journal.Journal`; a job has the id of its run and must be entered first."""

    def __init__(self, store: Store, feature_version: str) -> None:
        self._store = store
        self._feature_version = feature_version
        self._logs: dict[str, RunLog] = {}
        self._together = False

    def enter(
        self, spec: JobSpec, compiler: str, *, use_known: bool, hidden: Callable[[], Collection[str]] = frozenset
    ) -> None:
        """Enter the job of `spec.run_id`, whose run is in the records, before it runs.

        With `use_known`, the job is told of measurements of its workloads with the same `compiler`, except those of
        runs that are `hidden` when they are looked up.
        """
        self._logs[spec.run_id] = RunLog(
            self._store, spec, compiler, use_known=use_known, feature_version=self._feature_version, hidden=hidden
        )

    def conditions(self, job: str) -> TrainingConditions:
        """Return the conditions under which a job measures."""
        return self._run_log(job).conditions

    def leave(self, job: str) -> None:
        """Remove a job that is over."""
        self._logs.pop(job, None)

    def watch(self, job: str, work: Work) -> None:
        """Note a stage that begins; it is called before any of its items ends."""
        self._run_log(job).watch(work)

    def history(self, job: str) -> Sequence[Committed]:
        """Return all events of the job committed so far."""
        return self._run_log(job).history()

    def active_seconds(self, job: str) -> float:
        """Return the active run time of the job's earlier sessions, in seconds."""
        return self._store.runs.get(job).active_seconds

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Commit an entry and its measurements; after PREPARE also what is known of the model's workloads."""
        with self.together():
            return self._run_log(job).commit(entry)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of all commits within the context."""
        if self._together:
            yield
            return
        self._together = True
        try:
            with self._store.transaction():
                yield
                for run_log in self._logs.values():
                    run_log.write()
        except BaseException:
            for run_log in self._logs.values():
                run_log.forget()
            raise
        finally:
            self._together = False

    def _run_log(self, job: str) -> RunLog:
        try:
            return self._logs[job]
        except KeyError:
            raise OrderError(f"job {job} was not entered into the journal before it ran") from None
