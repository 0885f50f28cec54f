"""Re-measurement: the known programs that are timed again in each round of a subgraph.

Some programs are among the fastest only because they were timed while the machine was fast.  Timing them again corrects
that.
"""

from __future__ import annotations

import numpy as np

from kintune.core.candidate import UNTUNED
from kintune.search.drafts import Proposal
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState

__all__ = ["leaders"]


def leaders(state: SubgraphState, count: int) -> list[Proposal]:
    """Return the programs to be timed again: the `count` fastest known ones of a subgraph, except the untuned one."""
    fastest = [candidate for candidate in state.fastest(count) if candidate.sketch != UNTUNED]
    nothing = np.zeros(0, np.float32)
    return [Proposal(Draft(c, state.features.get(c, nothing)), None, "again") for c in fastest]
