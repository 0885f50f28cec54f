"""What a tuning job wants done next: rounds, as many as may be under way at once, and then the closing stages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from kintune.core.candidate import Candidate
from kintune.core.messages import Work
from kintune.core.stage_results import StageName
from kintune.tuning.job.limits import SearchLimits
from kintune.tuning.job.stage_factory import BUILD_S, StageFactory
from kintune.tuning.job.state import TRIES, JobState
from kintune.tuning.loop import Learn, Measure, Step, next_steps

__all__ = ["COMPILED", "Planner", "seconds_of_a_run", "stages_ahead"]


COMPILED = "compiled"
"""Why a search is over that was not asked for."""

_OWN = -1  # the place of a stage that is no round's: one at a time


_LEAST_PART = 8  # candidates of a round that are worth a device of their own


_REFERENCE_TRIES = 2  # builds of an untuned program before those that it vouches for are refused


_FRUITLESS = 3  # rounds without anything measured after which a search is over


class Planner:
    """Says what follows from a job's state; remembers what was offered and is not closed.

    `reason` says why the search has ended, once it has.  Of a round, one stage is offered at a time; the job's own
    stages (select, update, package) come one at a time as well, update before select: what is learnt is used at once.
    """

    def __init__(self, state: JobState, works: StageFactory) -> None:
        self.reason = ""
        self._state = state
        self._stages = works
        self._drafted: set[Candidate] = set()  # built for a draft, or in vain
        self._offered: dict[str, tuple[int, str]] = {}  # by stage: of which round, and of what kind

    def closed(self, stage: str) -> None:
        """A stage is over."""
        self._offered.pop(stage, None)

    @property
    def idle(self) -> bool:
        """Whether everything that was offered is closed."""
        return not self._offered

    def ahead(self) -> dict[str, int] | None:
        """How many stages of each duration key will follow those that are offered; None while nobody can tell."""
        kinds = [kind for _, kind in self._offered.values()]
        counts = stages_ahead(self._state, kinds, searching=not self.reason)
        return None if counts is None else {self._stages.duration_key(kind): count for kind, count in counts.items()}

    def seconds(self) -> dict[str, float]:
        """Of duration keys that no stage was seen of, how long one takes, as far as can be told."""
        runs = seconds_of_a_run(self._state)
        return {} if runs is None else {self._stages.duration_key(StageName.PROVE): self._stages.proof_s(*runs)}

    def next(self, asked_to_stop: str) -> list[Work]:
        """The works to offer now; with none, and nothing open, the job is over."""
        state = self._state
        if state.setbacks >= TRIES or state.failure:
            return []
        if state.prepared is None:
            return [self._offer(self._stages.prepare(), _OWN)] if self.idle else []
        if state.is_checking or state.wants_conservative or state.is_wrong:
            return self._check()
        if not state.spec.options.search:
            self.reason = self.reason or COMPILED
            return []
        if state.wants_peak and not asked_to_stop:
            return [self._offer(self._stages.peak(), _OWN)] if self.idle else []
        if not self.reason:
            works = list(self._search(asked_to_stop))
            if works or not self.idle:
                return works
        if not self.idle or not state.anything_measured():
            return []
        awaited = state.finalists.pending
        if awaited:
            return [self._offer(work, _OWN) for work in self._measure(awaited, None)]
        if state.packaged is None:
            return [self._offer(self._stages.package(state.shipping(), alone=state.wants_alone), _OWN)]
        if state.proof is None:
            return [self._offer(self._stages.prove(state.packaged), _OWN)]
        return []

    def _check(self) -> list[Work]:
        """The next step of the check of the network; none once it is known to be wrong whatever is done."""
        state = self._state
        if not self.idle or (state.is_wrong and state.culprit is not None):
            return []
        if state.is_wrong:
            return [self._offer(self._stages.explain(), _OWN)]
        if state.wants_conservative:
            return [self._offer(self._stages.prepare(conservative=True), _OWN)]
        attempt = state.begin_check().attempt
        if attempt is None:
            return []
        if state.draft is None:
            missing = [c for c in attempt.values() if c not in self._drafted and c not in state.built]
            if missing and state.spec.options.search:  # else starting those who build would take longer
                self._drafted.update(missing)
                return [self._offer(self._stages.build_draft(state.session.dearest_first(missing)), _OWN)]
            return [self._offer(self._stages.draft(attempt, alone=state.wants_alone), _OWN)]
        return [self._offer(self._stages.check(state.draft), _OWN)]

    def _search(self, asked_to_stop: str) -> Iterator[Work]:
        """The works of the tuning loop; sets `reason` once the search is over."""
        state, session = self._state, self._state.session
        limits = SearchLimits(state.spec.options, state.statistics, session, state.finalists.expected_trials)
        reason = limits.reached(asked_to_stop)
        fruitless = session.round >= _FRUITLESS and not state.anything_measured()
        measuring = {number for number, _ in self._offered.values()}
        steps: Sequence[Step] = ()
        if not asked_to_stop:
            steps = next_steps(
                session,
                trials_left=0 if reason or fruitless else limits.affordable(),
                inflight=state.spec.inflight,
                measuring=measuring,
                is_busy=_OWN in measuring,
            )
        for step in steps:
            if isinstance(step, Measure):
                yield from (self._offer(work, step.number) for work in self._measure(step.candidates, step.number))
            elif isinstance(step, Learn):
                yield self._offer(self._stages.update(session.round), _OWN)
            else:
                yield self._offer(self._stages.select(step.plan), _OWN)
        if not steps and self.idle and (asked_to_stop or not session.open_rounds):
            self.reason = reason or "converged"

    def _measure(self, awaited: Sequence[Candidate], number: int | None) -> list[Work]:
        """Build what is not built yet, references included, then time it; without a number, for the closing.

        Where more devices than rounds are there, a round is timed on several of them.
        """
        built, references = self._state.built, self._state.references
        missing = [candidate for candidate in awaited if candidate not in built]
        workloads = dict.fromkeys(candidate.workload for candidate in awaited)
        untuned = [Candidate.untuned(w) for w in workloads if w not in references]
        if missing or any(self._state.unreferenced[c.workload] < _REFERENCE_TRIES for c in untuned):
            session = self._state.session
            wanted = session.dearest_first(list(dict.fromkeys(missing + untuned)))
            patience_s = BUILD_S if untuned or number is None else session.build_patience_s(BUILD_S)
            return [self._stages.build(wanted, number, patience_s)]
        best = {w: s.best_us for w, s in self._state.session.states.items() if math.isfinite(s.best_us)}
        again = [c for c in awaited if number is not None and self._state.session.knows(c)]
        parts = 1
        if number is not None:
            parts = self._state.spec.devices // max(1, len(self._state.session.open_rounds))
            parts = max(1, min(parts, len(awaited) // _LEAST_PART))
        if parts == 1:
            return [self._stages.profile(awaited, built, references, number, None, best, again)]
        profile = self._stages.profile
        return [profile(awaited[at::parts], built, references, number, at, best, again) for at in range(parts)]

    def _offer(self, work: Work, placement: int) -> Work:
        self._offered[work.stage.id] = (placement, work.stage.kind)
        return work


_ROUND = (StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE)


_CLOSING = (StageName.BUILD, StageName.CONFIRM, StageName.PACKAGE, StageName.PROVE)


def stages_ahead(state: JobState, offered: Collection[str], *, searching: bool) -> dict[str, int] | None:
    """Stages by kind that will follow those `offered` (their kinds); None while nobody can tell.

    Whatever goes wrong comes on top.
    """
    if state.prepared is None:
        return None
    counts: Counter[str] = Counter()
    if searching:
        rounds = SearchLimits(
            state.spec.options, state.statistics, state.session, state.finalists.expected_trials
        ).rounds_left()
        if rounds is None:
            return None
        counts.update(dict.fromkeys(_ROUND, rounds))
        counts[StageName.SELECT] -= StageName.SELECT in offered
    for position, kind in enumerate(_ROUND[1:-1], start=2):
        if searching and kind in offered:
            counts.update(_ROUND[position:])
    counts.update(_CLOSING if searching else _after(offered))
    return {kind: count for kind, count in counts.items() if count > 0}


def seconds_of_a_run(state: JobState) -> tuple[float, float] | None:
    """Seconds of one run of the network by its subgraphs, tuned so far and untuned; None while nobody can tell."""
    if state.prepared is None:
        return None
    tuned_us, untuned_us = state.session.latency_us(), state.session.untuned_us()
    return (tuned_us / 1e6, untuned_us / 1e6) if math.isfinite(tuned_us + untuned_us) else None


def _after(offered: Collection[str]) -> tuple[str, ...]:
    """What still comes of the closing."""
    reached = [position for position, kind in enumerate(_CLOSING) if kind in offered]
    return _CLOSING[reached[-1] + 1 :] if reached else _CLOSING
