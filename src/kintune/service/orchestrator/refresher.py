"""Keeps the family models of each device type fresh: trained anew after so many measurements, by a job of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from kintune.core.knowledge import TrainingConditions
from kintune.transfer.refresh_job import RefreshSpec
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.process import Anywhere, Command

__all__ = ["Refresher"]
_PRIORITY = 0.2
_NAME = "refresh-"


class Refresher:
    """Counts measurements, and launches at most one refresh at a time.

    Args:
        records: where they are.
        every: after how many measurements under the same conditions.
        command: how a refresh's process is started.
        home: the host of its process; None where it may run on any.
        launch: hands a job to the engine.
        failed: told why a refresh did not succeed; jobs go on with the models that there are.
    """

    def __init__(
        self,
        records: str,
        every: int,
        command: Command | Anywhere,
        home: str | None,
        launch: Callable[[JobLaunch], None],
        failed: Callable[[str], None],
    ) -> None:
        self._records = records
        self._every = every
        self._command = command
        self._home = home
        self._launch = launch
        self._failed = failed
        self._measured: Counter[TrainingConditions] = Counter()
        self._running = False
        self._number = 0

    @staticmethod
    def owns(job: str) -> bool:
        """Whether this is a refresh, not somebody's job."""
        return job.startswith(_NAME)

    def measured(self, conditions: TrainingConditions) -> None:
        """One more measurement is in the records."""
        self._measured[conditions] += 1
        if self._measured[conditions] >= self._every and not self._running:
            self._measured[conditions] = 0
            self._running = True
            self._number += 1
            spec = msgspec.msgpack.encode(RefreshSpec(self._records, conditions))
            self._launch(JobLaunch(f"{_NAME}{self._number}", self._command, spec, _PRIORITY, home=self._home))

    def ended(self, end: JobEnd) -> None:
        """The refresh is over."""
        self._running = False
        if end.ending is not JobEnding.FINISHED:
            self._failed(end.cause)
