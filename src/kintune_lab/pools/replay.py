"""Replays searches on a pool: every candidate is already measured, and the cost is counted in trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Sketch
from kintune.core.config import Strategy
from kintune.core.outcome import Outcome, Status
from kintune.search.build_costs import Price
from kintune.search.cost_model import CostModel
from kintune.search.drafts import Proposal
from kintune.search.features.field import Field
from kintune.search.session import SearchSession
from kintune.search.space import Draft, SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune.tuning.loop import Timed, rounds
from kintune_lab.pools.pool import Pool

__all__ = ["Point", "PoolSpace", "replay", "trials_to_reach"]


class Point(NamedTuple):
    """After `trials` the network is estimated to take `network_us`, infinite while a subgraph has no program."""

    trials: int
    network_us: float
    families: int


def replay(pool: Pool, strategy: Strategy, *, seed: int, trials: int) -> Iterator[Point]:
    """Play one search of at most `trials` trials; a point after each round.

    It ends early when the search is done or the pool is exhausted.
    """
    space = PoolSpace(pool)
    session = SearchSession(pool.subjects, space, strategy, seed=seed, threads=1, proposer=space.propose)
    done = 0

    def measure(candidates: Sequence[Candidate]) -> list[Timed]:
        return [Timed(candidate, space.measure(candidate)) for candidate in candidates]

    for each in rounds(session, measure, trials=trials):
        done += sum(proposal.origin != "again" for proposal in each.proposals)
        if each.learnt is not None:
            yield Point(done, session.latency_us(), len({state.family for state in session.states.values()}))


def trials_to_reach(points: list[Point], network_us: float) -> int | None:
    """The trials after which the network took `network_us` or less; None when that was never reached."""
    return next((point.trials for point in points if point.network_us <= network_us), None)


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

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        """The members of the pool among the candidates."""
        return [
            Draft(candidate, self._features(candidate)) if candidate in self._rows else None for candidate in candidates
        ]

    def measure(self, candidate: Candidate) -> Outcome:
        """Returns the outcome of the candidate when the pool was collected."""
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

    def _draft(self, candidate: Candidate) -> Draft:
        return Draft(candidate, self._features(candidate))

    def _features(self, candidate: Candidate) -> NDArray[np.float32]:
        measured, row = self._rows[candidate]
        features: NDArray[np.float32] = measured.features[row]
        return features
