"""The finalists of a job: which programs are timed again, which ship, and the summary of the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from kintune.core.candidate import FULL_PRECISION, Candidate
from kintune.core.outcome import Outcome
from kintune.core.quantisation import INT8
from kintune.core.stage_results import BaselineLatencies, Packaged, Prepared, SubgraphEnd, Summary, ValidationResult
from kintune.core.workload import Subgraph, by_combination
from kintune.search.session import SearchSession
from kintune.search.space import SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune.tuning.job.packing_choice import WORTH, PackingOption, agree_on_packing
from kintune.tuning.job.precision_choice import Alternative
from kintune.tuning.job.statistics import JobStatistics

__all__ = ["FINALISTS", "Finalists"]

FINALISTS = 8
"""Programs of each tuned subgraph that are timed again, at most."""

_ALWAYS = 3
"""Programs of each tuned subgraph that are timed again in any case."""

_NEAR = 1.1
"""The others are timed again only if they take at most this many times as long as the best one."""

_LIGHT = 0.01
"""A subgraph that takes less than this share of the network's time has `_ALWAYS` finalists at most."""

_REPLACED = 6  # finalists that are replaced if they fail, at most

_LOOKED_AT = 32  # programs of a subgraph, the fastest ones, whose layout of weights is compared with others'

_FASTER = 0.98
"""A narrower precision is an alternative where it takes at most this share of the time."""

_EXPECTED = 0.5
"""The share of the time that a narrower precision is expected to take where it was not timed."""

_FLOPS_A_US = 2e5
"""FLOPs that are expected in a microsecond where nothing was timed: only the order of subgraphs depends on it."""

_TRIALS = 0.5  # time of a finalist in trials; it is built already


class Finalists:
    """The best few programs of each subgraph, which are timed again so that a lucky measurement does not decide.

    Trivial subgraphs, which are not searched, have two: the rule's program and the untuned one.  `packing` names the
    layout of a program's weights: subgraphs with the same weights agree on one where that costs little.  `precisions`
    has the sketches (digests) of programs that compute narrower than fp32.  Each precision of a subgraph has finalists
    of its own; which ships is decided by `permit`, until when it is fp32.

    With `by_rule` nothing is timed: the best known programs ship, and where none is known, those of the rule.
    """

    def __init__(
        self,
        subgraphs: Sequence[Subgraph],
        session: SearchSession,
        space: SearchSpace,
        packing: Callable[[Candidate], str],
        precisions: Mapping[str, str] | None = None,
        *,
        by_rule: bool = False,
    ) -> None:
        self._subgraphs = subgraphs
        self._by_rule = by_rule
        self._packing = packing
        self._alike: dict[str, list[Subgraph]] = {}  # by weights: the subgraphs that read the same ones
        for subgraph in subgraphs:
            if subgraph.weights:
                self._alike.setdefault(subgraph.weights, []).append(subgraph)
        self._session = session
        self._space = space
        self._confirmed: dict[Candidate, Outcome] = {}
        self._trivial: dict[str, list[Candidate]] | None = None
        self._left_untuned: frozenset[str] = frozenset()
        self._precisions = dict(precisions or {})
        self._permitted: dict[str, str] = {}  # by workload, where it is not fp32
        self._by_the_rule: dict[tuple[str, str], list[Candidate]] = {}  # by workload and precision

    def know(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in the outcome of a finalist in an earlier run."""
        self._confirmed[candidate] = outcome

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in the outcome of a finalist in this run."""
        self._confirmed[candidate] = outcome

    def leave_untuned(self, workloads: Collection[str]) -> None:
        """Let these workloads ship untuned, since their other programs made the network fail."""
        self._left_untuned |= frozenset(workloads)

    def permit(self, precisions: Mapping[str, str]) -> None:
        """Let programs of these precisions ship for these workloads, and programs in fp32 for all others."""
        self._permitted = dict(precisions)

    @property
    def has_narrow(self) -> bool:
        """Whether the space has programs that compute narrower than fp32."""
        return bool(self._precisions)

    def alternatives(self) -> list[Alternative]:
        """Return the narrower precisions in which a workload is faster than in fp32, by what was timed again.

        By rule, these are all in which it has a program that is not known to be slower.
        """
        if self._by_rule:
            return self._expected()
        latency_us, found = self._session.latency_us(), []
        for subgraph in self._subgraphs if self._precisions else ():
            best: dict[str, float] = {}
            for candidate in self._of(subgraph, latency_us):
                if candidate in self._confirmed:
                    precision, us = self._precision(candidate), self._confirmed[candidate].median_us
                    best[precision] = min(us, best.get(precision, math.inf))
            wide_us = best.pop(FULL_PRECISION, math.inf)
            found += [
                Alternative(subgraph.workload, precision, subgraph.weight * (wide_us - us))
                for precision, us in best.items()
                if us < _FASTER * wide_us < math.inf
            ]
        return found

    def _expected(self) -> list[Alternative]:
        """Return the alternatives where nothing is timed, with the time that each is expected to save."""
        found = []
        for subgraph in self._subgraphs:
            kinds = {self._precisions[sketch] for sketch in subgraph.sketches if sketch in self._precisions}
            if subgraph.workload in self._left_untuned:
                continue
            wide_us = min(self._likely(subgraph))[0]
            for precision in sorted(kinds):
                if not (likely := self._likely(subgraph, precision)):
                    continue
                us = min(likely)[0]
                whole_us = wide_us if math.isfinite(wide_us) else us / _EXPECTED
                whole_us = whole_us if math.isfinite(whole_us) else subgraph.flops / _FLOPS_A_US
                us = us if math.isfinite(us) else _EXPECTED * whole_us
                if us < _FASTER * whole_us:
                    found.append(Alternative(subgraph.workload, precision, subgraph.weight * (whole_us - us)))
        return found

    def draft(self) -> dict[str, Candidate]:
        """Return the best known program of each workload: a measured one, else the rule's, else the untuned one."""
        likely = {s.workload: self._likely(s) for s in self._subgraphs}
        best = {workload: min(timed)[1] for workload, timed in likely.items()}
        return {**best, **{workload: option.candidate for workload, option in self._agreed(likely).items()}}

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
        if self._by_rule:
            return []
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
        """Return the program that ships for each workload: the fastest finalist, else the untuned one.

        Subgraphs with the same weights have finalists that want them laid out alike, where these are nearly as fast.
        """
        return {workload: candidate for workload, (_, candidate) in self._shipping().items()}

    def summary(
        self,
        prepared: Prepared,
        statistics: JobStatistics,
        reason: str,
        packaged: Packaged | None,
        proof: ValidationResult | None,
        notes: Sequence[str] = (),
        baselines: BaselineLatencies | None = None,
        ships_instead: Mapping[str, Candidate] | None = None,
    ) -> Summary:
        """Return the summary of the job.

        By workload, `ships_instead` has the programs that ship; None where these are the `chosen` ones.
        """
        ends: list[SubgraphEnd] = []
        shipped_us: dict[str, float] = {}
        shipping = self._shipping()
        for workload, candidate in (ships_instead or {}).items():
            if candidate != shipping[workload][1]:
                shipping[workload] = (self._known_us(candidate), candidate)
        for subgraph in self._subgraphs:
            state = self._session.states.get(subgraph.workload)
            best_us, ships = shipping[subgraph.workload]
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
                    titles=subgraph.titles,
                    precision=INT8 if subgraph.workload in prepared.on_bytes else self._precision(ships),
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
            peak=statistics.peak,
            baselines=baselines,
            quantised=prepared.quantised,
        )

    def _known_us(self, candidate: Candidate) -> float:
        """Return what a program took when it was timed last; infinite where it was not measured."""
        if candidate in self._confirmed:
            return self._confirmed[candidate].median_us
        state = self._session.states.get(candidate.workload)
        return math.inf if state is None else state.times_us.get(candidate, math.inf)

    def _likely(self, subgraph: Subgraph, precision: str = FULL_PRECISION) -> list[tuple[float, Candidate]]:
        """Return the best known programs of a subgraph in a precision with their times; in fp32 at least one."""
        workload = subgraph.workload
        if workload in self._left_untuned:
            return [(math.inf, Candidate.untuned(workload))] if precision == FULL_PRECISION else []
        confirmed = [
            (outcome.median_us, c)
            for c, outcome in self._confirmed.items()
            if c.workload == workload and self._precision(c) == precision
        ]
        if finite := [pair for pair in confirmed if math.isfinite(pair[0])]:
            return finite
        state = self._session.states.get(workload)
        if state is not None and (fast := state.fastest(FINALISTS, lambda c: self._precision(c) == precision)):
            return [(state.times_us[candidate], candidate) for candidate in fast]
        return [(math.inf, candidate) for candidate in self._simple(workload, precision)[:1]]

    def _of(self, subgraph: Subgraph, latency_us: float) -> list[Candidate]:
        if subgraph.workload in self._left_untuned:
            return [Candidate.untuned(subgraph.workload)]
        state = self._session.states.get(subgraph.workload)
        if state is not None:
            kinds = dict.fromkeys([FULL_PRECISION, *(self._precision(c) for c in state.times_us if self._precisions)])
            finalists = [c for kind in kinds for c in self._of_precision(subgraph, state, latency_us, kind)]
            return finalists + self._agreeing(subgraph, finalists)
        if self._trivial is None:
            self._trivial = {s.workload: self._simple(s.workload) for s in self._subgraphs if not s.tunable}
        return self._trivial[subgraph.workload]

    def _of_precision(
        self, subgraph: Subgraph, state: SubgraphState, latency_us: float, precision: str
    ) -> list[Candidate]:
        """Return the finalists of a subgraph in one precision."""

        def among(candidate: Candidate) -> bool:
            return self._precision(candidate) == precision

        if not (first := state.fastest(1, among)):
            return []
        best_us = state.times_us[first[0]]
        most = _most(subgraph.weight * best_us, latency_us)
        failed = {
            c for c in state.fastest(most + _REPLACED, among) if c in self._confirmed and not self._confirmed[c].ok
        }
        replaced = min(_REPLACED, len(failed))
        return [
            candidate
            for rank, candidate in enumerate(state.fastest(most + replaced, among))
            if candidate not in failed and (rank < _ALWAYS + replaced or state.times_us[candidate] <= _NEAR * best_us)
        ]

    def _precision(self, candidate: Candidate) -> str:
        return self._precisions.get(candidate.sketch, FULL_PRECISION)

    def _agreeing(self, subgraph: Subgraph, finalists: Sequence[Candidate]) -> list[Candidate]:
        """Return more finalists: one for each layout of the weights that the fastest program of a subgraph with the
        same weights wants and that no finalist has, if there is one that is nearly as fast.
        """
        states = self._session.states
        others = [states[s.workload] for s in self._alike.get(subgraph.weights, ()) if s.workload in states]
        if len(others) < 2:
            return []
        wanted = {self._packing(candidate) for state in others for candidate in state.fastest(1)}
        wanted -= {self._packing(candidate) for candidate in finalists}
        state, found = states[subgraph.workload], []
        for candidate in state.fastest(_LOOKED_AT) if wanted else ():
            if state.times_us[candidate] > WORTH * state.best_us:
                break
            if (packing := self._packing(candidate)) in wanted and candidate not in finalists:
                found.append(candidate)
                wanted.discard(packing)
        return found

    def _shipping(self) -> dict[str, tuple[float, Candidate]]:
        """Return the program that ships for each workload, with its time; infinite where it was not measured."""
        latency_us = self._session.latency_us()
        timed = {s.workload: self._timed(s, latency_us) for s in self._subgraphs}
        best = {workload: min(pairs) for workload, pairs in timed.items()}
        return {**best, **{workload: (o.us, o.candidate) for workload, o in self._agreed(timed).items()}}

    def _agreed(self, timed: Mapping[str, Sequence[tuple[float, Candidate]]]) -> dict[str, PackingOption]:
        """Return the programs of subgraphs that share weights with others, chosen from some with their times."""
        chosen: dict[str, PackingOption] = {}
        for members in self._alike.values():
            if len(members) < 2:
                continue
            options: dict[str, list[PackingOption]] = {}
            for member in members:
                worth_us = WORTH * min(timed[member.workload])[0]
                near = [(us, candidate) for us, candidate in timed[member.workload] if us <= worth_us]
                options[member.workload] = [
                    PackingOption(candidate, us, self._packing(candidate)) for us, candidate in near
                ]
            chosen.update(agree_on_packing(options))
        return chosen

    def _simple(self, workload: str, precision: str = FULL_PRECISION) -> list[Candidate]:
        """Return the rule's program in a precision, if it has one that is valid; in fp32 also the untuned one."""
        key = (workload, precision)
        if key not in self._by_the_rule:
            first = self._space.rules(workload, 2 if not self._precisions else _LOOKED_AT)
            those = [candidate for candidate in first if self._precision(candidate) == precision][:2]
            valid = [draft.candidate for draft in self._space.verify(those) if draft]
            untuned = [Candidate.untuned(workload)] if precision == FULL_PRECISION else []
            self._by_the_rule[key] = [*valid[:1], *untuned]
        return self._by_the_rule[key]

    def _timed(self, subgraph: Subgraph, latency_us: float) -> list[tuple[float, Candidate]]:
        """Return the finalists that ran with their times, or else the untuned program; by rule what is likely."""
        permitted = self._permitted.get(subgraph.workload, FULL_PRECISION)
        if self._by_rule:
            return self._likely(subgraph, permitted) or self._likely(subgraph)
        finalists = self._of(subgraph, latency_us)
        confirmed = [
            (self._confirmed[c].median_us, c)
            for c in finalists
            if c in self._confirmed and self._precision(c) == permitted
        ]
        ran = [pair for pair in confirmed if math.isfinite(pair[0])]
        return ran or [(math.inf, Candidate.untuned(subgraph.workload))]


def _most(total_us: float, latency_us: float) -> int:
    """Return the most finalists of a subgraph that takes `total_us` of the network's time, over all occurrences."""
    return _ALWAYS if total_us < _LIGHT * latency_us < math.inf else FINALISTS
