"""The search's state of one subgraph: its measurements, and the history of its best time."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome
from kintune.search.family import Subject

__all__ = ["SubgraphState"]

_PROGRESS = 0.005  # the best time counts as improved if it fell by this share


@dataclass
class SubgraphState:
    """The measured candidates of one subgraph.

    `told` are the candidates that are known from the records.  `build_s` has the build times of this run, `failures`
    the number of failures by status.  `bound_us` is a lower bound of the time, 0 if it is unknown.

    `rounds` counts the rounds of the subgraph and `stale` the last ones without progress, both in units of full rounds.
    `history` has the best time after each round.  `exhausted` is True if the space had no new candidates.
    `suggestions` were good under other conditions and are measured first.  `timings` has all times of the candidates
    that were timed more than once; their median counts.
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
        """Take in one outcome; `counts` says whether it is a trial."""
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
        """Take in the new times of programs that were timed again; returns the best time without the `fresh` ones.

        The time of a program is the median of its times, or the lower one of the two in the middle.  So one slow
        measurement does not change the best program, and a lucky one is corrected when it was timed twice again.
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
        """Note the end of a round, whose size is the `share` of a full one."""
        before = self.history[-1] if self.history else float("inf")
        progressed = self.best_us < before * (1 - _PROGRESS)
        self.rounds += share
        self.stale = 0.0 if progressed else self.stale + share
        self.history.append(self.best_us)

    def fastest(self, count: int, among: Callable[[Candidate], bool] | None = None) -> list[Candidate]:
        """Return the `count` fastest candidates measured, of those in `among`; ties in candidate order."""
        timed = ((time, candidate) for candidate, time in self.times_us.items() if math.isfinite(time))
        good = timed if among is None else ((time, candidate) for time, candidate in timed if among(candidate))
        return [candidate for _, candidate in heapq.nsmallest(count, good)]

    @property
    def tried(self) -> int:
        """Number of candidates with an outcome, without the untuned program."""
        return len(self.times_us) - (Candidate.untuned(self.subject.workload) in self.times_us)
