"""Plans the next stages of a tuning job: rounds, several at once if allowed, and then the closing stages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from kintune.core.candidate import Candidate
from kintune.core.messages import Work
from kintune.core.stage_results import StageName
from kintune.tuning.job.limits import SearchLimits
from kintune.tuning.job.stage_factory import BUILD_S, StageFactory
from kintune.tuning.job.state import TRIES, JobState
from kintune.tuning.loop import Learn, Measure, Step, next_steps
from kintune.validate.validation_run import REFERENCES, SLOW_UNTUNED_SECONDS

__all__ = ["COMPILED", "Planner", "limits_of", "seconds_of_a_run", "stages_ahead"]


COMPILED = "compiled"
"""The reason why the search is over if none was asked for."""

_OWN = -1  # in place of a round's number, for stages of the job itself: one at a time


_LEAST_PART = 8  # candidates of a part of a round, at least


_REFERENCE_TRIES = 2  # builds of an untuned program before the workload's candidates are refused


_FRUITLESS = 3  # rounds without any program that ran after which the search ends


class Planner:
    """Plans stages from a job's state; keeps the stages that were offered and are not closed.

    `reason` says why the search has ended; it is empty before.  One stage of a round is offered at a time, as is one of
    the job's own stages (select, update, package); update comes before select, so that new models are used at once.
    """

    def __init__(self, state: JobState, stages: StageFactory) -> None:
        self.reason = ""
        self._state = state
        self._stages = stages
        self._has_drafted_again = False
        self._drafted: set[Candidate] = set()  # for which a build for a draft was offered
        self._offered: dict[str, tuple[int, str]] = {}  # by stage: number of the round, and kind

    def closed(self, stage: str) -> None:
        """Note that a stage is over."""
        self._offered.pop(stage, None)

    @property
    def idle(self) -> bool:
        """Whether all stages that were offered are closed."""
        return not self._offered

    def ahead(self) -> dict[str, int] | None:
        """Return how many stages of each duration key will follow the offered ones; None if it cannot be told yet."""
        kinds = [kind for _, kind in self._offered.values()]
        counts = stages_ahead(self._state, kinds, searching=not self.reason)
        return None if counts is None else {self._stages.duration_key(kind): count for kind, count in counts.items()}

    def seconds(self) -> dict[str, float]:
        """Return estimates of the seconds of a stage by duration key, for those that come only once."""
        told: dict[str, float] = {}
        if (item := self._state.baselines.wanted) is not None:
            told[self._stages.duration_key(StageName.BASELINE)] = self._stages.baseline_s(item)
        if (runs := seconds_of_a_run(self._state)) is not None:
            told[self._stages.duration_key(StageName.PROVE)] = self._stages.proof_s(*runs)
        return told

    @property
    def proof_seconds(self) -> float:
        """The estimated seconds of the proof; 0 until the time of a run is known."""
        if self._state.prepared is None:
            return 0.0
        tuned_us = self._state.session.latency_us()
        return self._stages.proof_s(tuned_us / 1e6, _untuned_s(self._state)) if math.isfinite(tuned_us) else 0.0

    def next(self, asked_to_stop: str) -> list[Work]:
        """Return the stages to offer now; if there are none and all are closed, the job is over."""
        state = self._state
        if state.setbacks >= TRIES or state.failure:
            return []
        if state.prepared is None:
            return [self._offer(self._stages.prepare(), _OWN)] if self.idle else []
        if state.is_checking or state.wants_conservative or state.is_wrong:
            return self._check()
        options = state.spec.options
        if not options.search:
            self.reason = self.reason or COMPILED
            if not self.idle:
                return []
            return self._end_compiled(asked_to_stop)
        if state.baselines.wanted is not None and not asked_to_stop:
            return [self._offer(self._stages.baseline(state.baselines.wanted), _OWN)] if self.idle else []
        if state.wants_peak and not asked_to_stop:
            return [self._offer(self._stages.peak(), _OWN)] if self.idle else []
        if not self.reason:
            works = list(self._search(asked_to_stop))
            if works or not self.idle:
                return works
        if not self.idle:
            return []
        if not state.anything_measured():
            return self._end_compiled(asked_to_stop) if asked_to_stop else []
        awaited = state.finalists.pending
        if awaited:
            return [self._offer(work, _OWN) for work in self._measure(awaited, None)]
        return self._close(asked_to_stop)

    def _end_compiled(self, asked_to_stop: str) -> list[Work]:
        """Return the next closing stage of a job without measurements: the network of its check is its result, unless
        the error of narrower types is to be measured.
        """
        has_budget = self._state.spec.options.error_budget is not None
        return self._close(asked_to_stop) if has_budget else self._draft_again()

    def _draft_again(self) -> list[Work]:
        """Return the stage that compiles what was found good, where nothing else ships and its file is gone; once."""
        if self._state.draft is not None or not self._state.checked or self._has_drafted_again:
            return []
        self._has_drafted_again = True
        return [self._offer(self._stages.draft(self._state.checked, alone=False), _OWN)]

    def _close(self, asked_to_stop: str) -> list[Work]:
        """Return the next stage that chooses precisions, packages the network or proves it; none once it is proven."""
        state = self._state
        state.narrowing.begin(state.finalists)
        if asked_to_stop and state.narrowing.tried:
            state.narrowing.settle()
        if state.narrowing.is_trying:
            return [self._offer(self._try_precisions(), _OWN)]
        if state.packaged is None:
            return [self._offer(self._package(), _OWN)]
        if state.proof is None:
            narrow = bool(state.narrowing.chosen) or state.packaged.quantised is not None
            return [self._offer(self._stages.prove(state.packaged, _untuned_s(state), narrow=narrow), _OWN)]
        return []

    def _try_precisions(self) -> Work:
        """Return the next stage of a network in precisions that are tried: it is compiled, and run.

        Programs that were not built for a search are built first.
        """
        state, narrowing = self._state, self._state.narrowing
        if narrowing.draft is not None:
            return self._stages.error(narrowing.draft)
        chosen = state.finalists.chosen()
        if not state.spec.options.search and (missing := self._unbuilt(chosen.values())):
            return self._build_draft(missing)
        beside = state.checked if narrowing.is_timed else None
        return self._stages.narrow(chosen, keeping=narrowing.keeping, beside=beside)

    def _package(self) -> Work:
        state = self._state
        keeping = state.narrowing.keeping
        return self._stages.package(
            state.shipping(), alone=state.wants_alone, keeping=keeping, untuned=_wants_untuned(state)
        )

    def _check(self) -> list[Work]:
        """Return the next stage of the check of the network; none if the cause of its failure is known."""
        state = self._state
        if not self.idle:
            return []
        if handed_over := state.wants_handover:
            return [self._offer(self._stages.prepare(handed_over=handed_over), _OWN)]
        if state.is_wrong and state.culprit is not None:
            return []
        if state.is_wrong:
            return [self._offer(self._stages.explain(), _OWN)]
        if state.wants_conservative:
            return [self._offer(self._stages.prepare(conservative=True, handed_over=state.spec.handed_over), _OWN)]
        attempt = state.begin_check().attempt
        if attempt is None:
            return []
        if state.draft is None:
            missing = self._unbuilt(attempt.values())
            if missing and state.spec.options.is_proven:  # where that is all, starting build workers would take longer
                return [self._offer(self._build_draft(missing), _OWN)]
            return [self._offer(self._stages.draft(attempt, alone=state.wants_alone), _OWN)]
        return [
            self._offer(self._stages.check(state.draft, state.wrong_on, only_alone=state.excused is not None), _OWN)
        ]

    def _unbuilt(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return those that are not built yet, and for which no build was offered."""
        return [c for c in candidates if c not in self._drafted and c not in self._state.programs.timeable]

    def _build_draft(self, candidates: Sequence[Candidate]) -> Work:
        """Return the stage that builds these programs of a network, so that compiling it need not."""
        self._drafted.update(candidates)
        return self._stages.build_draft(self._state.session.dearest_first(candidates))

    def _search(self, asked_to_stop: str) -> Iterator[Work]:
        """Yield the stages of the tuning loop; sets `reason` when the search is over."""
        state, session = self._state, self._state.session
        limits = limits_of(state)
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
        """Return stages that build what is not built yet, with references, or else time it.

        `number` is the round; None is for the closing.  If there are more devices than open rounds, a round is timed on
        several of them.
        """
        programs = self._state.programs
        built, references = programs.timeable, programs.references
        missing = [candidate for candidate in awaited if candidate not in built]
        workloads = dict.fromkeys(candidate.workload for candidate in awaited)
        untuned = [Candidate.untuned(w) for w in workloads if w not in references]
        if missing or any(programs.unreferenced[c.workload] < _REFERENCE_TRIES for c in untuned):
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

    def _offer(self, work: Work, number: int) -> Work:
        self._offered[work.stage.id] = (number, work.stage.kind)
        return work


_ROUND = (StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE)


_CLOSING = (StageName.BUILD, StageName.CONFIRM, StageName.PACKAGE, StageName.PROVE)


def stages_ahead(state: JobState, offered: Collection[str], *, searching: bool) -> dict[str, int] | None:
    """Return how many stages of each kind will follow those of the `offered` kinds; None if it cannot be told yet.

    Stages after failures are not counted.
    """
    if state.prepared is None:
        return None
    counts: Counter[str] = Counter()
    if searching:
        rounds = limits_of(state).rounds_left()
        if rounds is None:
            return None
        counts.update(dict.fromkeys(_ROUND, rounds))
        counts[StageName.SELECT] -= StageName.SELECT in offered
    for position, kind in enumerate(_ROUND[1:-1], start=2):
        if searching and kind in offered:
            counts.update(_ROUND[position:])
    counts.update(_CLOSING if searching else _after(offered))
    if state.baselines.wanted is not None and StageName.BASELINE not in offered:
        counts[StageName.BASELINE] += 1
    return {kind: count for kind, count in counts.items() if count > 0}


def limits_of(state: JobState, closing_trials: float | None = None) -> SearchLimits:
    """Return the limits of a job; its finalists take the time of `closing_trials`, by default as many as expected."""
    return SearchLimits(
        state.spec.options,
        state.statistics,
        state.session,
        state.finalists.expected_trials if closing_trials is None else closing_trials,
        state.is_target_met(),
        has_narrow=state.finalists.has_narrow,
    )


def seconds_of_a_run(state: JobState) -> tuple[float, float] | None:
    """Return the seconds of a run of the network, as tuned so far and untuned, by its subgraphs; None if unknown."""
    if state.prepared is None:
        return None
    tuned_us, untuned_us = state.session.latency_us(), state.session.untuned_us()
    return (tuned_us / 1e6, untuned_us / 1e6) if math.isfinite(tuned_us + untuned_us) else None


def _untuned_s(state: JobState) -> float:
    """Return the seconds of a run of the untuned network with the slowest combination of shapes; 0 if unknown."""
    untuned_us = max(state.untuned_us(), default=math.inf)
    return untuned_us / 1e6 if math.isfinite(untuned_us) else 0.0


def _wants_untuned(state: JobState) -> bool:
    """Return whether the untuned network is to be compiled: not where it is slow and others say what is right."""
    return _untuned_s(state) <= SLOW_UNTUNED_SECONDS or not state.baselines.have_timed(REFERENCES)


def _after(offered: Collection[str]) -> tuple[str, ...]:
    """Return the closing stages that follow the offered ones."""
    reached = [position for position, kind in enumerate(_CLOSING) if kind in offered]
    return _CLOSING[reached[-1] + 1 :] if reached else _CLOSING
