"""The fastest program of each workload, as its tuner measured them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Generic, TypeVar

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome
from kintune_lab.contest.orders import Failure

__all__ = ["Incumbents"]

Found = TypeVar("Found")


class Incumbents(Generic[Found]):
    """Takes in outcomes; `Found` is whatever a tuner knows a program by."""

    def __init__(self) -> None:
        self._best_us: dict[str, float] = {}
        self._changed: dict[str, tuple[Found, float]] = {}
        self._failures: list[Failure] = []
        self._measured: Counter[str] = Counter()

    def observe(self, workload: str, found: Found, outcome: Outcome, *, trial: bool = True) -> None:
        """One candidate was measured; an untuned program is no trial."""
        if trial:
            self._measured[workload] += 1
        if not outcome.ok:
            candidate = found if isinstance(found, Candidate) else None
            self._failures.append(Failure(workload, outcome.status, outcome.cause, candidate))
        elif outcome.median_us < self._best_us.get(workload, math.inf):
            self._best_us[workload] = outcome.median_us
            self._changed[workload] = (found, outcome.median_us)

    def settle(self, workload: str, found: Found, time_us: float) -> None:
        """The tuner believes in this program now, and that it takes so long, whatever it believed before."""
        known = self._changed.get(workload)
        if self._best_us.get(workload) != time_us or (known is not None and known[0] != found):
            self._best_us[workload] = time_us
            self._changed[workload] = (found, time_us)

    def take(self) -> tuple[dict[str, tuple[Found, float]], dict[str, int], tuple[Failure, ...]]:
        """Since this was last asked: new incumbents with their times in microseconds by workload, trials by workload,
        failures."""
        taken = self._changed, dict(self._measured), tuple(self._failures)
        self._changed, self._measured, self._failures = {}, Counter(), []
        return taken
