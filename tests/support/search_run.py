"""A search played to its end on the synthetic machine, with the events it committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.outcome import Outcome
from kintune.core.plan import Round
from kintune.search.cost_model import CostModel
from kintune.search.session import SearchSession
from kintune.testing.synthetic_space import SyntheticSpace
from kintune.tuning.loop import Timed, rounds

__all__ = ["Adopted", "Began", "Event", "Observed", "SearchRun", "fold", "new_session"]


class Began(msgspec.Struct, frozen=True):
    """A selection was committed."""

    plan: Round
    picks: Mapping[Candidate, NDArray[np.float32]]
    predicted: Mapping[Candidate, float | None] = {}


class Observed(msgspec.Struct, frozen=True):
    """An outcome was committed."""

    candidate: Candidate
    outcome: Outcome


class Adopted(msgspec.Struct, frozen=True):
    """An update was committed."""

    models: Mapping[str, CostModel]
    families: Mapping[str, str] = {}
    rounds: tuple[int, ...] | None = None


Event: TypeAlias = Began | Observed | Adopted


_SMALL = Strategy(round_size=16, foresee_size=4)


def new_session(
    space: SyntheticSpace,
    *,
    seed: int = 0,
    strategy: Strategy = _SMALL,
) -> SearchSession:
    """A session over all workloads of the space, by default with smaller rounds than in earnest."""
    return SearchSession(space.subjects(), space, strategy, seed=seed, threads=1)


def fold(session: SearchSession, events: Sequence[Event]) -> SearchSession:
    """The session after the events."""
    for event in events:
        if isinstance(event, Began):
            session.begin(event.plan, event.picks, event.predicted)
        elif isinstance(event, Observed):
            session.observe(event.candidate, event.outcome)
        else:
            session.adopt(event.models, event.families, event.rounds)
    return session


class SearchRun:
    """Plays rounds of the tuning loop, and keeps the events that a job would have committed."""

    def __init__(self, space: SyntheticSpace, session: SearchSession) -> None:
        self.space = space
        self.session = session
        self.events: list[Event] = []

    @property
    def trials(self) -> int:
        """How many candidates were measured for the first time, untuned programs not counted."""
        known = {candidate for state in self.session.states.values() for candidate in state.told}
        measured = {event.candidate for event in self.events if isinstance(event, Observed)}
        return sum(candidate.sketch != UNTUNED for candidate in measured - known)

    @property
    def plans(self) -> list[Round]:
        """The rounds begun so far."""
        return [event.plan for event in self.events if isinstance(event, Began)]

    def rounds(self, trials: int) -> Iterator[Round]:
        """Play rounds until `trials` are spent or the search converges; yields each plan once its round is over."""
        for done in rounds(self.session, self._measure, trials=trials - self.trials):
            scores = {p.draft.candidate: p.predicted for p in done.proposals}
            picks = {p.draft.candidate: p.draft.features for p in done.proposals}
            self.events.append(Began(done.plan, picks, scores))
            self.events += [Observed(each.candidate, each.outcome) for each in done.measured]
            if done.learnt is not None:
                self.events.append(Adopted(*done.learnt))
            yield done.plan

    def play(self, trials: int) -> SearchRun:
        """The run after at most `trials` candidates."""
        for _ in self.rounds(trials):
            pass
        return self

    def _measure(self, candidates: Sequence[Candidate]) -> list[Timed]:
        return [Timed(candidate, self.space.measure(candidate)) for candidate in candidates]
