"""Where a job's time went, as the engine saw it."""

from __future__ import annotations

import msgspec

__all__ = ["StageClock", "Timings"]


class Timings(msgspec.Struct, frozen=True):
    """Seconds of one session of a job, from its first stage on.

    `stage_seconds` are those for which stages held their resources, by kind; stages that overlap count each.
    `wall_seconds` passed in all, and for `busy_seconds` of them at least one stage was running.
    """

    stage_seconds: dict[str, float] = {}
    wall_seconds: float = 0.0
    busy_seconds: float = 0.0

    @property
    def overhead_seconds(self) -> float:
        """The seconds in which nothing ran: what scheduling, committing and talking cost, and waits between retries."""
        return self.wall_seconds - self.busy_seconds


class StageClock:
    """Adds up a job's stages as they begin and end; times are the engine's clock, in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._running = 0
        self._busy_since = 0.0
        self._busy = 0.0
        self._by_kind: dict[str, float] = {}

    def begin(self, now: float) -> None:
        """A stage was given its resources."""
        if self._began is None:
            self._began = now
        if self._running == 0:
            self._busy_since = now
        self._running += 1

    def end(self, now: float, kind: str, since: float) -> None:
        """A stage of this kind, running since `since`, has let go of its resources."""
        self._running -= 1
        if self._running == 0:
            self._busy += now - self._busy_since
        self._by_kind[kind] = self._by_kind.get(kind, 0.0) + now - since

    def active(self, now: float) -> float:
        """The seconds since the first stage began."""
        return 0.0 if self._began is None else now - self._began

    def read(self, now: float) -> Timings:
        """What has been added up by now."""
        busy = self._busy + (now - self._busy_since if self._running else 0.0)
        return Timings(dict(self._by_kind), self.active(now), busy)
