"""The fastest program of each workload, as its tuner measured them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Generic, TypeVar

from kintune.measure.outcome import Outcome

__all__ = ["Incumbents"]

Found = TypeVar("Found")


class Incumbents(Generic[Found]):
    """Takes in outcomes; `Found` is whatever a tuner knows a program by."""

    def __init__(self) -> None:
        self._best_us: dict[str, float] = {}
        self._changed: dict[str, tuple[Found, float]] = {}
        self._failures: Counter[str] = Counter()
        self._measured: Counter[str] = Counter()

    def observe(self, workload: str, found: Found, outcome: Outcome, *, trial: bool = True) -> None:
        """One candidate was measured; an untuned program is no trial."""
        if trial:
            self._measured[workload] += 1
        if not outcome.ok:
            self._failures[outcome.status.value] += 1
        elif outcome.median_us < self._best_us.get(workload, math.inf):
            self._best_us[workload] = outcome.median_us
            self._changed[workload] = (found, outcome.median_us)

    def take(self) -> tuple[dict[str, tuple[Found, float]], dict[str, int], dict[str, int]]:
        """Since this was last asked: new incumbents with their times in microseconds by workload, trials by workload,
        failures by how they ended."""
        taken = self._changed, dict(self._measured), dict(self._failures)
        self._changed, self._measured, self._failures = {}, Counter(), Counter()
        return taken
