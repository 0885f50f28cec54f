"""The warm-up: a few candidates of every subgraph are measured before any full round.

So a search that is stopped early has a usable result, and every family has samples to learn from.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

import numpy as np

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.plan import RoundEntry
from kintune.search.cost_model import CostModel
from kintune.search.drafts import Proposal
from kintune.search.evolve import draw
from kintune.search.sketch_program import narrow
from kintune.search.space import Draft, SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune.search.transfer import TransferredPrograms

__all__ = ["Warmup"]

T = TypeVar("T")

_KNOWN = 3  # additional candidates of the first level, if earlier jobs have programs to transfer
_CHOICE = 3  # drafts verified for each candidate that the model chooses
_DRAWN = 8  # attempts for each candidate drawn at random


class Warmup:
    """Plans the rounds of the warm-up and chooses their candidates; has no state of its own."""

    def __init__(self, space: SearchSpace, strategy: Strategy, transferred: TransferredPrograms) -> None:
        self._space = space
        self._strategy = strategy
        self._levels = strategy.survey
        self._transferred = transferred

    def plan(self, states: Sequence[SubgraphState], begun: int) -> tuple[int, tuple[RoundEntry, ...]]:
        """Return the next level at which candidates are missing, from `begun` on, and the entries of its round.

        Without entries, the warm-up is over.  Subgraphs with the most work come first.
        """
        ordered = sorted(states, key=lambda s: (-s.subject.weight * s.subject.flops, s.subject.workload))
        for level in range(begun, len(self._levels)):
            entries = [
                RoundEntry(state.subject.workload, size, "rule")
                for state in ordered
                if (size := self._missing(state, level)) > 0 and self._has_candidates(state, states)
            ]
            if entries:
                return level, tuple(entries)
        return len(self._levels), ()

    def choose(
        self,
        state: SubgraphState,
        states: Sequence[SubgraphState],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[list[Proposal], int]:
        """Return at most `count` candidates of a subgraph, and the number of invalid drafts.

        Suggestions come first.  The family's model chooses among the others, if there is one; otherwise transferred
        candidates and those of the rule alternate.  If all chosen candidates would compute in a narrower precision than
        the workload's types, and none in these types was measured, one takes the last place: an error budget may allow
        no other for this subgraph.
        """
        origins = self._origins(state, states)
        if len(origins) < count and not self._strategy.rules:
            origins.update((c, "random") for c in self._draw(state, count, rng) if c not in origins)
        wanted = count * _CHOICE if model is not None and state.features else count + 2
        narrower = {} if self._has_full_precision(state) else narrow(self._space.sketches(state.subject.workload))
        tried = _with_one_outside(list(origins.items()), wanted, narrower)
        drafts: dict[Candidate, tuple[Draft, str]] = {}
        invalid = 0
        for (_, origin), draft in zip(tried, self._space.verify([c for c, _ in tried]), strict=True):
            if draft is None:
                invalid += 1
            elif draft.candidate not in state.times_us:
                drafts.setdefault(draft.candidate, (draft, origin))
        ranked = [(p.draft.candidate, p) for p in _best(list(drafts.values()), model, len(drafts))]
        return [proposal for _, proposal in _with_one_outside(ranked, count, narrower)], invalid

    def _has_full_precision(self, state: SubgraphState) -> bool:
        """Whether a program in the workload's own types was measured, beside the untuned one."""
        narrower = narrow(self._space.sketches(state.subject.workload))
        return any(c.sketch != UNTUNED and c.sketch not in narrower for c in state.times_us)

    def _missing(self, state: SubgraphState, level: int) -> int:
        """Return how many candidates of this level are missing; the first level includes all suggestions."""
        suggested = sum(c not in state.times_us for c in state.suggestions) if level == 0 else 0
        extra = min(_KNOWN, self._transferred.offered(state))
        extra += bool(narrow(self._space.sketches(state.subject.workload)))  # one of each precision
        size = self._levels[level] + (extra if level == 0 else 0)
        return max(suggested, min(sum(self._levels[: level + 1]) + extra - state.tried, size))

    def _has_candidates(self, state: SubgraphState, states: Sequence[SubgraphState]) -> bool:
        """Return whether `choose` may find a candidate that was not measured yet."""
        if not self._strategy.rules and self._space.sketches(state.subject.workload):
            return True
        return bool(self._origins(state, states))

    def _origins(self, state: SubgraphState, states: Sequence[SubgraphState]) -> dict[Candidate, str]:
        """Return unmeasured candidates with their origins, in order of preference."""
        found = dict.fromkeys(state.suggestions, "suggested")
        carried = self._transferred.carried(state, states) if self._strategy.carry else []
        transferred = [*((c, "kin") for c in self._transferred.known(state)), *((c, "carried") for c in carried)]
        rules = self._space.rules(state.subject.workload, sum(self._levels)) if self._strategy.rules else []
        of_rule = [(c, "rule") for c in rules if c not in state.times_us]
        for candidate, origin in _turns(transferred, of_rule):
            found.setdefault(candidate, origin)
        return {candidate: origin for candidate, origin in found.items() if candidate not in state.times_us}

    def _draw(self, state: SubgraphState, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        sketches = self._space.sketches(state.subject.workload)
        drawn = (draw(sketches[int(rng.integers(len(sketches)))], rng) for _ in range(count * _DRAWN) if sketches)
        return list(dict.fromkeys(drawn))[: count * 2]


def _with_one_outside(
    ranked: Sequence[tuple[Candidate, T]], count: int, sketches: Container[str]
) -> list[tuple[Candidate, T]]:
    """Return the first `count` of `ranked`.

    If all of them are of the given sketches (digests), the last one gives way to the best one of another sketch.
    """
    chosen = list(ranked[:count])
    if count > 1 and all(candidate.sketch in sketches for candidate, _ in chosen):
        other = next((each for each in ranked[count:] if each[0].sketch not in sketches), None)
        if other is not None:
            chosen[-1] = other
    return chosen


def _turns(
    left: Sequence[tuple[Candidate, str]], right: Sequence[tuple[Candidate, str]]
) -> Iterable[tuple[Candidate, str]]:
    """Yield the elements of both in turns, then the rest of the longer one."""
    for i in range(max(len(left), len(right))):
        yield from left[i : i + 1]
        yield from right[i : i + 1]


def _best(drafts: Sequence[tuple[Draft, str]], model: CostModel | None, count: int) -> list[Proposal]:
    """Return at most `count` drafts: suggested ones first, then by the model's score, without a model in order."""
    if model is None or not drafts:
        return [Proposal(draft, None, origin) for draft, origin in drafts[:count]]
    scores = [float(score) for score in model.predict(np.stack([draft.features for draft, _ in drafts]))]
    proposals = [Proposal(draft, score, origin) for (draft, origin), score in zip(drafts, scores, strict=True)]
    suggested = [p for p in proposals if p.origin == "suggested"]
    ranked = sorted(zip(scores, proposals, strict=True), key=lambda pair: -pair[0])
    others = [p for _, p in ranked if p.origin != "suggested"]
    return [*suggested, *others][:count]
