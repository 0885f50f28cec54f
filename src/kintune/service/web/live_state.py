"""The live state, from the orchestrator's events: the progress of each job, the stages of the last minutes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kintune.core.report import ProgressReport
from kintune.scheduler.resources import Placement
from kintune.service.orchestrator.events import (
    Changed,
    EventTally,
    News,
    Progressed,
    StageBegan,
    StageEnded,
    Standing,
    Standings,
    Starting,
)

__all__ = ["LiveStage", "LiveState"]
_KEPT_S = 600.0
_MOST_STAGES = 5000
_SILENT = "the orchestrator does not answer"
_BEHIND = 100  # news that a watcher may be behind


class LiveStage(NamedTuple):
    """A stage that ran, or runs (`end` is None), in seconds since 1970, and what it has measured."""

    job: str
    name: str
    kind: str
    placement: Placement
    begin: float
    end: float | None
    tally: EventTally = EventTally()


class LiveState:
    """The state that all viewers share, so that a viewer costs only what is sent to it.

    `standings` are all hosts and devices, as far as the orchestrator has reported them, and `unready` is why it works
    on no jobs, "" if it does.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._progress: dict[str, ProgressReport] = {}
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._running: dict[tuple[str, str], LiveStage] = {}
        self._past: deque[LiveStage] = deque(maxlen=_MOST_STAGES)
        self._watchers: dict[asyncio.Queue[News], str | None] = {}
        self.standings: tuple[Standing, ...] = ()
        self.unready = _SILENT

    def update(self, news: News) -> None:
        """Takes in an event of the orchestrator."""
        match news:
            case Progressed():
                self._progress[news.job] = news.report
                self._extend(news.job, news.report)
            case Changed() if news.state.over:
                self._progress.pop(news.job, None)
                self._curves.pop(news.job, None)
            case StageBegan():
                self._running[news.job, news.stage] = LiveStage(
                    news.job, news.stage, news.kind, news.placement, news.at, None
                )
            case StageEnded():
                begun = self._running.pop((news.job, news.stage), None)
                if begun is not None:
                    self._past.append(begun._replace(end=news.at, tally=news.tally))
            case Starting():
                self.unready = news.waits_for
            case Standings():
                self.standings = news.resources
            case _:
                pass
        for queue, job in self._watchers.items():
            if job in (None, news.job) and not queue.full():
                queue.put_nowait(news)

    def forget_what_runs(self) -> None:
        """Forget running stages and standings: the orchestrator is gone."""
        self._running.clear()
        self.standings = ()
        self.unready = _SILENT

    def progress(self, job: str) -> ProgressReport | None:
        """Where a job stands, if anything is known."""
        return self._progress.get(job)

    def curve(self, job: str) -> list[tuple[float, float]]:
        """What is known of a job's best latency: (seconds, ms), one point whenever it got better."""
        return list(self._curves.get(job, ()))

    def running(self, job: str | None = None) -> list[LiveStage]:
        """The stages that run, of one job or of all."""
        return [stage for stage in list(self._running.values()) if job in (None, stage.job)]

    def stages(self, seconds: float = _KEPT_S) -> list[LiveStage]:
        """Returns the stages of the last `seconds`, including those that run."""
        since = self._now() - seconds
        return [stage for stage in self._past.copy() if (stage.end or 0.0) >= since] + self.running()

    def _extend(self, job: str, report: ProgressReport) -> None:
        curve = self._curves.setdefault(job, [])
        if report.best_ms is not None and (not curve or curve[-1][1] != report.best_ms):
            curve.append((report.elapsed_s, report.best_ms))

    def use(self, seconds: float) -> dict[str, float]:
        """Returns the share of the last `seconds` in which each host and each device was busy."""
        now = self._now()
        spans: dict[str, list[tuple[float, float]]] = {}
        for stage in self.stages(seconds):
            span = max(now - seconds, stage.begin), min(now, stage.end or now)
            for resource in _resources(stage.placement):
                spans.setdefault(resource, []).append(span)
        return {resource: _covered(found) / seconds for resource, found in sorted(spans.items())}

    def tallies(self, seconds: float) -> dict[str, EventTally]:
        """Returns what each device has measured in the stages that ended in the last `seconds`."""
        found: dict[str, EventTally] = {}
        for stage in self.stages(seconds):
            if stage.placement.device is not None and stage.tally.measured:
                found[stage.placement.device] = found.get(stage.placement.device, EventTally()).plus(stage.tally)
        return dict(sorted(found.items()))

    @contextmanager
    def watching(self, job: str | None = None) -> Iterator[Callable[[], Awaitable[News]]]:
        """Yields a function that waits for the next event of one job, or of all; a slow caller misses some."""
        queue: asyncio.Queue[News] = asyncio.Queue(_BEHIND)
        self._watchers[queue] = job
        try:
            yield queue.get
        finally:
            del self._watchers[queue]


def _resources(placement: Placement) -> list[str]:
    """The host and the device that a stage has."""
    return [resource for resource in (placement.host, placement.device) if resource is not None]


def _covered(spans: list[tuple[float, float]]) -> float:
    """How many seconds at least one of them covers."""
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered
