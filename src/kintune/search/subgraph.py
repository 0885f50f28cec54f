"""What the search knows of one subgraph: everything measured, and how its best time came about."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome
from kintune.search.family import Subject

__all__ = ["SubgraphState"]

_PROGRESS = 0.005  # a best time counts as improved when it fell by this share


@dataclass
class SubgraphState:
    """The measured candidates of one subgraph.

    `stale` counts the rounds in a row that brought no progress, in units of full rounds; `exhausted` says that the
    space had no new candidates to offer; `suggestions` were good under other conditions and are measured first.  What
    was known before this run is `told`.
    `bound_us` is what no program can take less than, 0 where nobody knows; `build_s` are the seconds that the
    candidates of this run took to be built; `timings` are all times of those that were timed more than once, of which
    the median counts.
    """

    subject: Subject
    family: str
    times_us: dict[Candidate, float] = field(default_factory=dict)
    told: set[Candidate] = field(default_factory=set)
    build_s: dict[Candidate, float] = field(default_factory=dict)
    features: dict[Candidate, NDArray[np.float32]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    best: Candidate | None = None
    best_us: float = float("inf")
    untuned_us: float = float("inf")
    bound_us: float = 0.0
    trials: int = 0
    rounds: float = 0.0
    stale: float = 0.0
    exhausted: bool = False
    history: list[float] = field(default_factory=list)
    suggestions: list[Candidate] = field(default_factory=list)
    timings: dict[Candidate, list[float]] = field(default_factory=dict)

    def observe(
        self, candidate: Candidate, outcome: Outcome, features: NDArray[np.float32] | None, *, counts: bool
    ) -> None:
        """Take in one outcome of this run; `counts` is False for what costs no trial."""
        time = outcome.median_us
        self.times_us[candidate] = time
        self.trials += counts
        if counts and not outcome.ok:
            self.failures[outcome.status.value] = self.failures.get(outcome.status.value, 0) + 1
        if candidate.sketch == UNTUNED:
            self.untuned_us = time
        elif features is not None and features.size:
            self.features[candidate] = features
        if time < self.best_us:
            self.best, self.best_us = candidate, time

    def correct(self, again_us: Mapping[Candidate, float], fresh: Collection[Candidate]) -> float:
        """A round is measured in which known programs were timed again; the best time without its `fresh` ones.

        Of several times of a program the median counts, of an even number the lower one of the two in the middle: so a
        single slow minute costs nobody the lead, and who was only lucky loses it when twice timed again.
        """
        for candidate, time in again_us.items():
            timings = self.timings.setdefault(candidate, [self.times_us[candidate]])
            timings.append(time)
            self.times_us[candidate] = statistics.median_low(timings)
        known_us = min((time for candidate, time in self.times_us.items() if candidate not in fresh), default=math.inf)
        self.history = [max(past, known_us) for past in self.history]
        for candidate in self.fastest(1):
            self.best, self.best_us = candidate, self.times_us[candidate]
        return known_us

    def close_round(self, share: float) -> None:
        """A round of `share` of a full round's size has been measured."""
        before = self.history[-1] if self.history else float("inf")
        progressed = self.best_us < before * (1 - _PROGRESS)
        self.rounds += share
        self.stale = 0.0 if progressed else self.stale + share
        self.history.append(self.best_us)

    def fastest(self, count: int) -> list[Candidate]:
        """The `count` fastest candidates measured, fastest first; ties in candidate order."""
        good = ((time, candidate) for candidate, time in self.times_us.items() if math.isfinite(time))
        return [candidate for _, candidate in heapq.nsmallest(count, good)]

    @property
    def tried(self) -> int:
        """How many candidates have an outcome, the untuned program not counted."""
        return len(self.times_us) - (Candidate.untuned(self.subject.workload) in self.times_us)
