"""Foresee tuning: what a full round on one subgraph taught is used at once for its steepest sibling.

FamilySeer, arXiv 2201.00194.
"""

from __future__ import annotations

from collections.abc import Iterable

from kintune.search.budget import rank
from kintune.search.subgraph import SubgraphState

__all__ = ["sibling"]


def sibling(tuned: SubgraphState, states: Iterable[SubgraphState]) -> SubgraphState | None:
    """The other member of the tuned subgraph's family that is expected to gain most, or None."""
    for state in rank(states):
        if state.family == tuned.family and state is not tuned:
            return state
    return None
