"""Where a contestant's seconds go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["PAUSED", "Laps"]

PAUSED = ""
"""The stage whose seconds nobody is charged for."""


class Laps:
    """Seconds by stage since they were last taken; a stage inside another is not counted twice."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the seconds inside the `with` block for the stage `name`."""
        self._turn_over()
        self._running.append(name)
        try:
            yield
        finally:
            self._turn_over()
            self._running.pop()

    def take(self) -> dict[str, float]:
        """The seconds by stage, which begin at nothing again."""
        self._turn_over()
        taken, self._seconds = self._seconds, {}
        return taken

    def _turn_over(self) -> None:
        """Charge the running stage, if there is one, for the seconds until now."""
        now = self._clock()
        name = self._running[-1] if self._running else PAUSED
        if name != PAUSED:
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now
