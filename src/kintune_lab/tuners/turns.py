"""What every tuner under test needs: time accounting, best programs, and a thread that works turn by turn."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome
from kintune_lab.tuners.messages import CandidateFailure

__all__ = ["PAUSED", "BestPrograms", "StageTimer", "TurnThread"]


PAUSED = ""
"""The name of a stage whose seconds are not counted."""


class StageTimer:
    """Adds up seconds by stage; while a stage runs inside another, only the inner one counts."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the seconds inside the `with` block for the stage `name`."""
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def take(self) -> dict[str, float]:
        """Return the seconds by stage since the last call."""
        self._charge()
        taken, self._seconds = self._seconds, {}
        return taken

    def _charge(self) -> None:
        """Add the seconds since the last call to the running stage, if there is one."""
        now = self._clock()
        name = self._running[-1] if self._running else PAUSED
        if name != PAUSED:
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now


Found = TypeVar("Found")


class BestPrograms(Generic[Found]):
    """The fastest program of each workload by the tuner's own times; `Found` is the tuner's type of a program."""

    def __init__(self) -> None:
        self._best_us: dict[str, float] = {}
        self._changed: dict[str, tuple[Found, float]] = {}
        self._failures: list[CandidateFailure] = []
        self._measured: Counter[str] = Counter()

    def observe(self, workload: str, found: Found, outcome: Outcome, *, trial: bool = True) -> None:
        """Note the outcome of a candidate; `trial` is False for an untuned program."""
        if trial:
            self._measured[workload] += 1
        if not outcome.ok:
            candidate = found if isinstance(found, Candidate) else None
            self._failures.append(CandidateFailure(workload, outcome.status, outcome.cause, candidate))
        elif outcome.median_us < self._best_us.get(workload, math.inf):
            self._best_us[workload] = outcome.median_us
            self._changed[workload] = (found, outcome.median_us)

    def set_best(self, workload: str, found: Found, time_us: float) -> None:
        """Set the best program of a workload and its time, also where an earlier time was lower."""
        known = self._changed.get(workload)
        if self._best_us.get(workload) != time_us or (known is not None and known[0] != found):
            self._best_us[workload] = time_us
            self._changed[workload] = (found, time_us)

    def take(self) -> tuple[dict[str, tuple[Found, float]], dict[str, int], tuple[CandidateFailure, ...]]:
        """Return what is new since the last call: best programs with their times in microseconds by workload, trials by
        workload, and failures.
        """
        taken = self._changed, dict(self._measured), tuple(self._failures)
        self._changed, self._measured, self._failures = {}, Counter(), []
        return taken


class TurnThread:
    """Runs `work` in a daemon thread that proceeds only during `turn`."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go = threading.Semaphore(0)
        self._over = threading.Semaphore(0)
        self._work = work
        self._error: BaseException | None = None
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="tuner", daemon=True)
        self._thread.start()

    def turn(self) -> bool:
        """Lets the work proceed until it ends its turn; returns whether the work has returned.

        Raises:
            BaseException: what the work raised.
        """
        if not self._finished:
            self._go.release()
            self._over.acquire()
        if self._error is not None:
            raise self._error
        return self._finished

    def end_turn(self) -> None:
        """End the turn, and wait for the next one; called by the work."""
        self._over.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._finished = True
            self._over.release()
