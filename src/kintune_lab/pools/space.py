"""A pool as a search space: its programs are those that were measured, and measuring them again costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Sketch
from kintune.core.outcome import Outcome, Status
from kintune.search.build_costs import Price
from kintune.search.cost_model import CostModel
from kintune.search.drafts import Proposal
from kintune.search.features.field import Field
from kintune.search.space import CandidateBatch, SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune_lab.pools.pool import Pool

__all__ = ["PoolSpace"]

_EXPLORE = 0.1  # share of a round that the model does not choose, as in a live search


class PoolSpace:
    """Implements `kintune.search.space.SearchSpace` and `kintune.search.propose.Proposer` over a pool.

    There are neither sketches nor rules, since nothing new can be made: a proposal is a member that was not taken yet.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._rows = {
            candidate: (measured, row)
            for measured in pool.subgraphs.values()
            for row, candidate in enumerate(measured.candidates)
        }

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """None."""
        del workload
        return ()

    def fields(self, workload: str) -> Sequence[Field]:
        """None."""
        del workload
        return ()

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """None."""
        del workload, limit
        return ()

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[CandidateBatch | None]:
        """The members of the pool among the candidates."""
        return [
            CandidateBatch(candidate, self._features(candidate)) if candidate in self._rows else None
            for candidate in candidates
        ]

    def measure(self, candidate: Candidate) -> Outcome:
        """What came of the candidate when the pool was collected."""
        measured, row = self._rows[candidate]
        time_us = float(measured.times_us[row])
        if np.isfinite(time_us):
            return Outcome(Status.OK, (time_us,))
        return Outcome(Status.RUN_FAILED, cause="failed when the pool was collected")

    def propose(
        self,
        state: SubgraphState,
        space: SearchSpace,
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
        *,
        explore: bool = True,
        rules: bool = True,
        carried: Sequence[Candidate] = (),
        experience: int = 0,
        price: Price | None = None,
    ) -> tuple[list[Proposal], int]:
        """At most `count` members that were not taken yet: those that the model ranks best, a tenth at random.

        All are random without a model.  None is ever invalid.
        """
        del space, rules, carried, experience, price
        measured = self._pool.subgraphs[state.subject.workload]
        left = np.array([row for row, c in enumerate(measured.candidates) if c not in state.times_us], dtype=np.int64)
        if not left.size:
            return [], 0
        shuffled = left[rng.permutation(left.size)]
        if model is None:
            return [Proposal(self._draft(measured.candidates[row]), None, "random") for row in shuffled[:count]], 0
        scores = model.predict(measured.features[shuffled])
        ranked = np.argsort(-scores, kind="stable")
        chosen = count - int(count * _EXPLORE) if explore else count
        picked = [*ranked[:chosen], *sorted(ranked[chosen:])[: count - min(chosen, ranked.size)]]
        return [
            Proposal(self._draft(measured.candidates[shuffled[at]]), float(scores[at]), "evolved") for at in picked
        ], 0

    def _draft(self, candidate: Candidate) -> CandidateBatch:
        return CandidateBatch(candidate, self._features(candidate))

    def _features(self, candidate: Candidate) -> NDArray[np.float32]:
        measured, row = self._rows[candidate]
        features: NDArray[np.float32] = measured.features[row]
        return features
