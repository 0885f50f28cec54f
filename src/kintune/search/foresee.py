"""Foresee tuning: after a full round of one subgraph, a short round of another subgraph of its family.

The freshly trained model of the family chooses its candidates (FamilySeer, arXiv 2201.00194).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kintune.search.budget import rank
from kintune.search.subgraph import SubgraphState

__all__ = ["sibling"]


def sibling(tuned: SubgraphState, states: Iterable[SubgraphState], taken: Collection[str] = ()) -> SubgraphState | None:
    """Return the other subgraph of the family, not in `taken`, with the largest expected gain; None without one.

    `states` are all subgraphs of the network.
    """
    for state in rank(states):
        if state.family == tuned.family and state is not tuned and state.subject.workload not in taken:
            return state
    return None
