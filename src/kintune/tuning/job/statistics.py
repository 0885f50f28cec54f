"""The statistics of a job: trials, failures, time, and the curve of the estimated latency."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Options
from kintune.core.device import Peak
from kintune.core.outcome import Outcome
from kintune.core.report import FamilyProgress, ProgressReport
from kintune.core.stage_results import KnowledgeUse
from kintune.search.session import SearchSession

__all__ = ["JobStatistics"]


@dataclass
class JobStatistics:
    """Counters of one job; times in seconds of active run time.

    The search began at `search_from`, after the network had been compiled and checked.  `disturbed` counts the trials
    that were timed again because other processes used the device's cores.  `samples` has one cause of each kind of
    failure.  `curve` has a row (seconds, trials, estimated latency in ms) for each change of the estimate.
    `peak` is the device's, None where it is not known.
    """

    at: float = 0.0
    search_from: float = 0.0
    trials: int = 0
    reused: int = 0
    disturbed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    samples: dict[str, str] = field(default_factory=dict)
    curve: list[tuple[float, int, float]] = field(default_factory=list)
    knowledge: KnowledgeUse = field(default_factory=KnowledgeUse)
    peak: Peak | None = None

    @property
    def search_s(self) -> float:
        """Seconds since the search began."""
        return self.at - self.search_from

    def taught(self, programs: int, models: int, lost: int) -> None:
        """Note the knowledge of other workloads that the job was given; `lost` counts what could not be used."""
        self.knowledge = KnowledgeUse(programs, models, self.knowledge.measured, lost)

    def count(self, candidate: Candidate, outcome: Outcome, *, trial: bool, of_kin: bool = False) -> None:
        """Count an outcome; `of_kin` says that its candidate was transferred from earlier jobs."""
        counts = trial and candidate.sketch != UNTUNED
        self.trials += counts
        self.disturbed += counts and outcome.repeated > 0
        if of_kin:
            self.knowledge = msgspec.structs.replace(self.knowledge, measured=self.knowledge.measured + 1)
        if outcome.ok:
            return
        name = outcome.status.value
        self.failures[name] = self.failures.get(name, 0) + 1
        self.samples.setdefault(name, outcome.cause)

    def point(self, latency_us: float) -> None:
        """Note the estimated latency of the network."""
        latency_ms = latency_us / 1e3
        if math.isfinite(latency_ms) and (not self.curve or latency_ms != self.curve[-1][2]):
            self.curve.append((self.at, self.trials, latency_ms))

    def story(self) -> str:
        """Return the failures by kind with one cause each, in a line; empty without failures."""
        parts = [f"{name} x{count} ({self.samples[name]})" for name, count in sorted(self.failures.items())]
        return "; ".join(parts)

    def report(
        self, stage: str, subgraph: str, options: Options, session: SearchSession | None, seconds_left: float | None
    ) -> ProgressReport:
        """Return the progress of the job for its user."""
        best = untuned = math.inf
        families: tuple[FamilyProgress, ...] = ()
        if session is not None and session.states:
            best, untuned = session.latency_us(), session.untuned_us()
            families = _families(session)
        return ProgressReport(
            stage=stage,
            trials=self.trials,
            trials_total=options.budgeted_trials,
            elapsed_s=self.at,
            time_left_s=seconds_left,
            best_ms=best / 1e3 if math.isfinite(best) else None,
            untuned_ms=untuned / 1e3 if math.isfinite(untuned) else None,
            families=families,
            subgraph=subgraph,
            failures=dict(self.failures),
            reused_records=self.reused,
            disturbed=self.disturbed,
        )


def _families(session: SearchSession) -> tuple[FamilyProgress, ...]:
    members: dict[str, list[tuple[int, float]]] = {}
    for state in session.states.values():
        gain = state.untuned_us / state.best_us if math.isfinite(state.untuned_us) else 1.0
        members.setdefault(state.family, []).append((state.trials, gain))
    return tuple(
        FamilyProgress(key, len(of), sum(trials for trials, _ in of), max(1.0, *(gain for _, gain in of)))
        for key, of in sorted(members.items())
    )
