"""What a tuning job wants done next: rounds, as many as may be under way at once, and then the closing stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kintune.job.limits import Limits
from kintune.job.state import JobState
from kintune.job.works import Works
from kintune.space.candidate import Candidate
from kintune.wire.messages import Work

__all__ = ["TRIES", "Agenda"]

TRIES = 3
"""How often a stage without which there is no result is tried before the job is given up."""

_OWN = -1  # the place of a stage that is no round's: one at a time
_FRUITLESS = 3  # rounds without anything measured after which a search is over


class Agenda:
    """Says what follows from a job's state; remembers what was offered and is not closed.

    `reason` says why the search has ended, once it has.  Of a round, one stage is offered at a time; the job's own
    stages (select, update, package) come one at a time as well, update before select: what is learnt is used at once.
    """

    def __init__(self, state: JobState, works: Works) -> None:
        self.reason = ""
        self._state = state
        self._works = works
        self._offered: dict[str, int] = {}

    def closed(self, stage: str) -> None:
        """A stage is over."""
        self._offered.pop(stage, None)

    @property
    def idle(self) -> bool:
        """Whether everything that was offered is closed."""
        return not self._offered

    def next(self, asked_to_stop: str) -> list[Work]:
        """The works to offer now; with none, and nothing open, the job is over."""
        state = self._state
        if state.setbacks >= TRIES:
            return []
        if state.prepared is None:
            return [self._offer(self._works.prepare(), _OWN)] if self.idle else []
        if not self.reason:
            works = list(self._search(asked_to_stop))
            if works or not self.idle:
                return works
        if not self.idle or not state.anything_measured():
            return []
        awaited = state.finalists.pending
        if awaited:
            return [self._offer(self._measure(awaited, None), _OWN)]
        if state.packaged is None:
            return [self._offer(self._works.package(state.finalists.chosen()), _OWN)]
        if state.proof is None:
            return [self._offer(self._works.prove(state.packaged), _OWN)]
        return []

    def _search(self, asked_to_stop: str) -> Iterator[Work]:
        state, session = self._state, self._state.session
        if not asked_to_stop:
            for number, pending in session.open_rounds.items():
                if number not in self._offered.values():
                    yield self._offer(self._measure(pending, number), number)
        if _OWN in self._offered.values():
            return
        if session.unlearnt and not asked_to_stop:
            yield self._offer(self._works.update(session.round), _OWN)
            return
        under_way = 0 if asked_to_stop else len(session.open_rounds)
        if under_way >= state.spec.inflight:
            return
        limits = Limits(state.spec.options, state.ledger, session, state.finalists.expected)
        reason = limits.reached(asked_to_stop)
        fruitless = session.round >= _FRUITLESS and not state.anything_measured()
        plan = None if reason or fruitless else session.plan(limits.affordable())
        if plan is not None:
            yield self._offer(self._works.select(plan), _OWN)
        elif not under_way and self.idle:
            self.reason = reason or "converged"

    def _measure(self, awaited: Sequence[Candidate], number: int | None) -> Work:
        """Build what is not built yet, references included, then time it; without a number, for the closing."""
        built, references = self._state.built, self._state.references
        missing = [candidate for candidate in awaited if candidate not in built]
        if missing:
            workloads = dict.fromkeys(candidate.workload for candidate in awaited)
            untuned = [Candidate.untuned(w) for w in workloads if w not in references]
            return self._works.build(list(dict.fromkeys(missing + untuned)), number)
        return self._works.profile(awaited, built, references, number)

    def _offer(self, work: Work, place: int) -> Work:
        self._offered[work.stage.id] = place
        return work
