"""Whole searches played on a pool: the cost is counted in trials, and time passes only for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.search.session import SearchSession
from kintune.tuning.loop import Timed, rounds
from kintune_lab.pools.pool import Pool
from kintune_lab.pools.space import PoolSpace

__all__ = ["Point", "replay", "trials_to_reach"]


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
