"""Keeps each device type's family models fresh: after every few measurements a job of its own trains them anew."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

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
        aside: runs what takes so long that the engine must not wait for it; by default in a thread.
    """

    def __init__(
        self,
        records: str,
        every: int,
        command: Command | Anywhere,
        home: str | None,
        launch: Callable[[JobLaunch], None],
        failed: Callable[[str], None],
        aside: Callable[[Callable[[], None]], None] = lambda act: threading.Thread(target=act, daemon=True).start(),
    ) -> None:
        self._records = records
        self._every = every
        self._command = command
        self._home = home
        self._launch = launch
        self._failed = failed
        self._aside = aside
        self._measured: Counter[TrainingConditions] = Counter()
        self._running = False
        self._number = 0
        self._copy: Path | None = None

    @staticmethod
    def owns(job: str) -> bool:
        """Returns whether this is a refresh rather than a user's job."""
        return job.startswith(_NAME)

    def measured(self, conditions: TrainingConditions) -> None:
        """One more measurement is in the records."""
        self._measured[conditions] += 1
        if self._measured[conditions] >= self._every and not self._running:
            self._measured[conditions] = 0
            self._running = True
            self._number += 1
            name = f"{_NAME}{self._number}"
            if isinstance(self._command, Command) or "://" in self._records:  # a server is asked over the network
                self._begin(name, conditions, self._records, ())
            else:
                self._aside(lambda: self._begin_with_copy(name, conditions))

    def ended(self, end: JobEnd) -> None:
        """The refresh is over."""
        self._running = False
        if self._copy is not None:
            self._copy.unlink(missing_ok=True)
            self._copy = None
        if end.ending is not JobEnding.FINISHED:
            self._failed(end.cause)

    def _begin(self, name: str, conditions: TrainingConditions, records: str, files: tuple[str, ...]) -> None:
        spec = msgspec.msgpack.encode(RefreshSpec(records, conditions))
        self._launch(JobLaunch(name, self._command, spec, _PRIORITY, home=self._home, files=files))

    def _begin_with_copy(self, name: str, conditions: TrainingConditions) -> None:
        """Launch a refresh that may run on another host, with a copy of the database file to which nobody writes."""
        copy = Path(f"{self._records}.{name}")
        try:
            copy.unlink(missing_ok=True)
            copy.touch(mode=0o600)
            with closing(sqlite3.connect(self._records)) as live, closing(sqlite3.connect(copy)) as target:
                live.backup(target)
        except (OSError, sqlite3.Error) as error:
            self._running = False
            copy.unlink(missing_ok=True)
            self._failed(f"{self._records}: cannot be copied for the nodes of the cluster ({error})")
            return
        self._copy = copy
        self._begin(name, conditions, str(copy), (str(copy),))
