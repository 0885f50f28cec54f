"""Foresee tuning: what a full round on one subgraph taught is used at once for its steepest sibling.

FamilySeer, arXiv 2201.00194.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kintune.search.budget import rank
from kintune.search.subgraph import SubgraphState

__all__ = ["sibling"]


def sibling(tuned: SubgraphState, states: Iterable[SubgraphState], taken: Collection[str] = ()) -> SubgraphState | None:
    """The other member of the tuned subgraph's family that is expected to gain most of those not `taken`, or None.

    `states` are all of the network's, which say what is worth a round.
    """
    for state in rank(states):
        if state.family == tuned.family and state is not tuned and state.subject.workload not in taken:
            return state
    return None
