"""What all jobs of an engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kintune.core.messages import Work
from kintune.scheduler.events import Event
from kintune.workers.engine.journal import Journal
from kintune.workers.engine.launcher import Launcher
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.remote_nodes import RemoteNodes
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.worker_pool import WorkerPool

__all__ = ["EngineContext"]


@dataclass
class EngineContext:
    """What all jobs of an engine share.

    `tell` hands an event to the scheduler.  `left` is called with a job's id when it is over and its process gone.
    `stalled` has a callback for each stage that found its process busy with another item: all are called when any item
    ends.
    """

    reactor: Reactor
    launcher: Launcher
    nodes: RemoteNodes
    pool: WorkerPool
    journal: Journal
    log: ProcessLog
    settings: EngineSettings
    clock: Callable[[], float]
    tell: Callable[[Event], None]
    progressed: Callable[[str, bytes], None]
    stage_began: Callable[[str, Work], None]
    left: Callable[[str], None]
    stalled: list[Callable[[], None]]

    def feed_stalled(self) -> None:
        """A process may be idle: have all stalled stages hand out items again."""
        waiting, self.stalled = self.stalled, []
        for feed in waiting:
            feed()
