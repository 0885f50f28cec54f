"""The drafts of one round: candidates that may be chosen.  Only those without analytic features are replayed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, fits
from kintune.search.features.encoding import Population
from kintune.search.features.field import Field
from kintune.search.space import Draft, SearchSpace

__all__ = ["Drafts", "Proposal"]


class Proposal(NamedTuple):
    """A draft with its predicted score (None without a model) and its origin."""

    draft: Draft
    predicted: float | None
    origin: str


class _Part(NamedTuple):
    """Candidates of one field, their encoded population, and their keys, which are equal for equal programs."""

    field: Field
    candidates: list[Candidate]
    population: Population
    keys: list[bytes]


class Drafts:
    """The drafts of one workload with their origins, in order of arrival; none that was measured before.

    `drafts` may hold candidates that were not replayed yet and are described by analytic features: they may turn out to
    be invalid, or to be other programs.  `seen` has the candidates that must not be added, `invalid` counts the invalid
    ones.  A candidate with the key of a measured program or of an earlier draft is put aside and used only when nothing
    else is left, except if that program is one of the `leaders`, of which variants are worth a trial.
    """

    def __init__(
        self, space: SearchSpace, workload: str, measured: Collection[Candidate], leaders: Collection[Candidate] = ()
    ) -> None:
        self.drafts: dict[Candidate, tuple[Draft, str]] = {}
        self.seen = set(measured)
        self.invalid = 0
        self._space = space
        self._fields = space.fields(workload)
        self._made: set[Candidate] = set()
        self._aside: dict[Candidate, tuple[Draft, str]] = {}
        self._leading = {key for part in self._parts(leaders) for key in part.keys}
        self._keys = {key for part in self._parts(measured) for key in part.keys}

    def add(self, candidates: Sequence[tuple[Candidate, str]]) -> None:
        """Add candidates with their origins; those without analytic features are replayed."""
        described = {c: (row, key) for c, row, key in self._described([candidate for candidate, _ in candidates])}
        others = [candidate for candidate, _ in candidates if candidate not in described]
        made = dict(zip(others, self._space.verify(others), strict=True))
        for candidate, origin in candidates:
            if candidate in described:
                row, key = described[candidate]
                self._keep(Draft(candidate, row), origin, aside=key in self._keys and key not in self._leading)
                self._keys.add(key)
            elif (draft := made[candidate]) is None:
                self.invalid += 1
            else:
                self._made.add(draft.candidate)
                self._keep(draft, origin, aside=False)

    def settle(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Remove these drafts and return them replayed, in their order, without invalid and already seen programs."""
        for proposal in proposals:
            self.drafts.pop(proposal.draft.candidate)
        waiting = [p.draft.candidate for p in proposals if p.draft.candidate not in self._made]
        made = dict(zip(waiting, self._space.verify(waiting), strict=True))
        settled: list[Proposal] = []
        for proposal in proposals:
            draft = made.get(proposal.draft.candidate, proposal.draft)
            if draft is None:
                self.invalid += 1
            elif draft.candidate not in self.seen:
                self.seen.add(draft.candidate)
                self.drafts.pop(draft.candidate, None)
                settled.append(proposal._replace(draft=draft))
        return settled

    def fetch_aside(self) -> None:
        """Add the candidates that were put aside to the drafts."""
        for draft, origin in self._aside.values():
            self._keep(draft, origin, aside=False)
        self._aside.clear()

    def _keep(self, draft: Draft, origin: str, *, aside: bool) -> None:
        if draft.candidate not in self.seen:
            (self._aside if aside else self.drafts).setdefault(draft.candidate, (draft, origin))

    def _described(self, candidates: Collection[Candidate]) -> Iterator[tuple[Candidate, NDArray[np.float32], bytes]]:
        """Yield the candidates that have analytic features, with their features and keys."""
        for part in self._parts(candidates):
            yield from zip(part.candidates, part.field.features(part.population), part.keys, strict=True)

    def _parts(self, candidates: Collection[Candidate]) -> Iterator[_Part]:
        """Yield the candidates that have analytic features, by field."""
        for number, field in enumerate(self._fields):
            own = [c for c in candidates if c in field.encoding and fits(field.encoding.axes, c.decisions)]
            if own:
                population = field.encoding.encode(own)
                yield _Part(field, own, population, [bytes([number]) + key for key in field.keys(population)])
