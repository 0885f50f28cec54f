"""The drafts of one round: candidates that may be chosen, made only where arithmetic cannot describe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.search.space import Draft, SearchSpace
from kintune.space.candidate import Candidate, fits

__all__ = ["Drafts", "Proposal"]


class Proposal(NamedTuple):
    """A draft with its predicted score, or None where no model was there to ask, and where it comes from."""

    draft: Draft
    predicted: float | None
    origin: str


class Drafts:
    """The drafts of one workload with their origins, in the order in which they came; none that was measured before.

    `drafts` may hold candidates that were only described, by arithmetic on what they decide: they may turn out to be no
    programs, or others.  `seen` are those that are of no use any more, `invalid` counts those that were no programs.
    """

    def __init__(self, space: SearchSpace, workload: str, measured: set[Candidate]) -> None:
        self.drafts: dict[Candidate, tuple[Draft, str]] = {}
        self.seen = measured
        self.invalid = 0
        self._space = space
        self._fields = space.fields(workload)
        self._made: set[Candidate] = set()

    def add(self, candidates: Sequence[tuple[Candidate, str]]) -> None:
        """Take in candidates with their origins; those that cannot be described are made."""
        rows = self._described([candidate for candidate, _ in candidates])
        others = [candidate for candidate, _ in candidates if candidate not in rows]
        made = dict(zip(others, self._space.verify(others), strict=True))
        for candidate, origin in candidates:
            if candidate in rows:
                self._keep(Draft(candidate, rows[candidate]), origin)
            elif (draft := made[candidate]) is None:
                self.invalid += 1
            else:
                self._made.add(draft.candidate)
                self._keep(draft, origin)

    def settle(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Take these out, made: in their order, without those that are no programs or are known by another name."""
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

    def _keep(self, draft: Draft, origin: str) -> None:
        if draft.candidate not in self.seen:
            self.drafts.setdefault(draft.candidate, (draft, origin))

    def _described(self, candidates: Sequence[Candidate]) -> dict[Candidate, NDArray[np.float32]]:
        rows: dict[Candidate, NDArray[np.float32]] = {}
        for field in self._fields:
            own = [c for c in candidates if c in field.frame and fits(field.frame.axes, c.decisions)]
            if own:
                rows.update(zip(own, field.features(field.frame.herd(own)), strict=True))
        return rows
