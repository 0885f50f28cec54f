"""The finalists of a job: which programs are timed again, which ship, and the summary of the job."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome
from kintune.core.stage_results import Packaged, Prepared, SubgraphEnd, Summary, ValidationResult
from kintune.core.workload import Subgraph, by_combination
from kintune.search.session import SearchSession
from kintune.search.space import SearchSpace
from kintune.tuning.job.statistics import JobStatistics

__all__ = ["FINALISTS", "Finalists"]

FINALISTS = 8
"""Programs of each tuned subgraph that are timed again, at most."""

_ALWAYS = 3
"""So many of them in any case; the others only if their times are at most `_NEAR` times the best one ..."""

_NEAR = 1.1

_LIGHT = 0.01
"""... and if the subgraph takes at least this share of the network's time."""

_REPLACED = 6  # finalists that are replaced if they fail, at most

_TRIALS = 0.5  # time of a finalist in trials; it is built already


class Finalists:
    """The best few programs of each subgraph, which are timed again so that a lucky measurement does not decide.

    Trivial subgraphs, which are not searched, have two: the rule's program and the untuned one.
    """

    def __init__(self, subgraphs: Sequence[Subgraph], session: SearchSession, space: SearchSpace) -> None:
        self._subgraphs = subgraphs
        self._session = session
        self._space = space
        self._confirmed: dict[Candidate, Outcome] = {}
        self._trivial: dict[str, list[Candidate]] | None = None
        self._left_untuned: frozenset[str] = frozenset()

    def know(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in the outcome of a finalist in an earlier run."""
        self._confirmed[candidate] = outcome

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in the outcome of a finalist in this run."""
        self._confirmed[candidate] = outcome

    def leave_untuned(self, workloads: Collection[str]) -> None:
        """Let these workloads ship untuned, since their other programs made the network fail."""
        self._left_untuned |= frozenset(workloads)

    def draft(self) -> dict[str, Candidate]:
        """Return the best known program of each workload: a measured one, else the rule's, else the untuned one."""
        return {s.workload: self._likely(s) for s in self._subgraphs}

    def untuned(self) -> dict[str, Candidate]:
        """Return the untuned program of each workload."""
        return {s.workload: Candidate.untuned(s.workload) for s in self._subgraphs}

    @property
    def expected_trials(self) -> float:
        """Expected time of all finalists, in trials."""
        states, latency_us = self._session.states.values(), self._session.latency_us()
        tuned = sum(min(_most(s.subject.weight * s.best_us, latency_us), max(1, s.tried)) for s in states)
        return _TRIALS * (tuned + 2 * (len(self._subgraphs) - len(states)))

    @property
    def outstanding_trials(self) -> float:
        """Time of the finalists that are left, in trials."""
        return _TRIALS * len(self.pending)

    @property
    def pending(self) -> list[Candidate]:
        """The finalists that are still to be timed again."""
        latency_us = self._session.latency_us()
        finalists: list[Candidate] = []
        for subgraph in self._subgraphs:
            finalists += self._of(subgraph, latency_us)
        return [c for c in finalists if c not in self._confirmed]

    def awaits(self, candidate: Candidate) -> bool:
        """Return whether the candidate is a finalist that is still to be timed again."""
        subgraph = next((s for s in self._subgraphs if s.workload == candidate.workload), None)
        if subgraph is None or candidate in self._confirmed:
            return False
        return candidate in self._of(subgraph, self._session.latency_us())

    def chosen(self) -> dict[str, Candidate]:
        """Return the program that ships for each workload: the fastest finalist, else the untuned one."""
        latency_us = self._session.latency_us()
        return {s.workload: self._best(s, latency_us)[0] for s in self._subgraphs}

    def summary(
        self,
        prepared: Prepared,
        statistics: JobStatistics,
        reason: str,
        packaged: Packaged | None,
        proof: ValidationResult | None,
        notes: Sequence[str] = (),
    ) -> Summary:
        """Return the summary of the job."""
        ends: list[SubgraphEnd] = []
        shipped_us: dict[str, float] = {}
        latency_us = self._session.latency_us()
        for subgraph in self._subgraphs:
            state = self._session.states.get(subgraph.workload)
            best_us = self._best(subgraph, latency_us)[1]
            shipped_us[subgraph.workload] = best_us if math.isfinite(best_us) else 0.0
            ends.append(
                SubgraphEnd(
                    name=subgraph.name,
                    workload=subgraph.workload,
                    weight=subgraph.weight,
                    flops=subgraph.flops,
                    family=state.family if state else "",
                    trials=state.trials if state else 0,
                    best_us=best_us if math.isfinite(best_us) else None,
                    untuned_us=state.untuned_us if state and math.isfinite(state.untuned_us) else None,
                    failures={name: count for name, count in state.failures.items() if count} if state else {},
                )
            )
        networks = by_combination(self._subgraphs)
        each_ms = [sum(s.weight * shipped_us[s.workload] for s in network) / 1e3 for network in networks]
        return Summary(
            model_name=prepared.model_name,
            model_digest=prepared.model_digest,
            reason=reason,
            trials=statistics.trials,
            reused=statistics.reused,
            disturbed=statistics.disturbed,
            subgraphs=tuple(ends),
            curve=tuple(statistics.curve),
            kernels_ms=sum(each_ms),
            packaged=packaged,
            proof=proof,
            knowledge=statistics.knowledge,
            notes=tuple(notes),
            kernels_each_ms=tuple(each_ms) if len(each_ms) > 1 else (),
        )

    def _likely(self, subgraph: Subgraph) -> Candidate:
        workload = subgraph.workload
        confirmed = [(outcome.median_us, c) for c, outcome in self._confirmed.items() if c.workload == workload]
        times, best = min(confirmed, default=(math.inf, None))
        if best is not None and math.isfinite(times):
            return best
        state = self._session.states.get(subgraph.workload)
        measured = [c for c in state.fastest(1) if math.isfinite(state.times_us[c])] if state is not None else []
        return (measured or self._simple(subgraph.workload))[0]

    def _of(self, subgraph: Subgraph, latency_us: float) -> list[Candidate]:
        if subgraph.workload in self._left_untuned:
            return [Candidate.untuned(subgraph.workload)]
        state = self._session.states.get(subgraph.workload)
        if state is not None:
            most = _most(subgraph.weight * state.best_us, latency_us)
            failed = {c for c in state.fastest(most + _REPLACED) if c in self._confirmed and not self._confirmed[c].ok}
            replaced = min(_REPLACED, len(failed))
            near_us = _NEAR * state.best_us
            return [
                candidate
                for placement, candidate in enumerate(state.fastest(most + replaced))
                if candidate not in failed and (placement < _ALWAYS + replaced or state.times_us[candidate] <= near_us)
            ]
        if self._trivial is None:
            self._trivial = {s.workload: self._simple(s.workload) for s in self._subgraphs if not s.tunable}
        return self._trivial[subgraph.workload]

    def _simple(self, workload: str) -> list[Candidate]:
        drafts = self._space.verify(self._space.rules(workload, 2))
        return [*[draft.candidate for draft in drafts if draft][:1], Candidate.untuned(workload)]

    def _best(self, subgraph: Subgraph, latency_us: float) -> tuple[Candidate, float]:
        finalists = self._of(subgraph, latency_us)
        confirmed = [(self._confirmed[c].median_us, c) for c in finalists if c in self._confirmed]
        time, candidate = min(confirmed, default=(math.inf, Candidate.untuned(subgraph.workload)))
        return (candidate, time) if math.isfinite(time) else (Candidate.untuned(subgraph.workload), math.inf)


def _most(total_us: float, latency_us: float) -> int:
    """Return the most finalists of a subgraph that takes `total_us` of the network's time, over all occurrences."""
    return _ALWAYS if total_us < _LIGHT * latency_us < math.inf else FINALISTS
