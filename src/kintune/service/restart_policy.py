"""When a process of the service that has ended is started again, and when that is no use; reads no clock."""

from __future__ import annotations

import os
import signal

from kintune.core.backoff import BackOff

__all__ = ["RestartPolicy"]


_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0


_STEADY_S = 60.0  # who has lived so long begins anew with the shortest wait


_HOPELESS = 5  # deaths in a row, each before it was steady


_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM})


class RestartPolicy:
    """Of one process.  Who dies by itself waits longer each time; who was killed comes back at once, however often.

    Who ends with EX_TEMPFAIL waits longer each time as well, but is never given up: the trouble passes.

    `due` is the time of the next start, on the clock of `now`.
    """

    def __init__(self) -> None:
        self.deaths = 0
        self.due = 0.0
        self._waits = BackOff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        self._started = 0.0

    @property
    def hopeless(self) -> bool:
        """Whether it has died too often before it was of use."""
        return self.deaths >= _HOPELESS

    def started(self, now: float) -> None:
        """It runs."""
        self._started = now

    def ended(self, code: int, now: float) -> None:
        """It has ended with this exit code, negative for a signal."""
        steady = now - self._started >= _STEADY_S
        if code in _KILLED or steady:
            self._waits.reset()
        if steady:
            self.deaths = 0
        if code not in _KILLED and code != os.EX_TEMPFAIL:
            self.deaths += 1
        self.due = now + self._waits.next_wait()
