"""What is known and timed again in each of a subgraph's rounds, beside the programs that are new.

The fastest known programs are partly the fastest and partly lucky: they ran in a fast minute of a machine that is not
always as fast.  Timed again they show it.
"""

from __future__ import annotations

import numpy as np

from kintune.core.candidate import UNTUNED
from kintune.search.drafts import Proposal
from kintune.search.space import CandidateBatch
from kintune.search.subgraph import SubgraphState

__all__ = ["leaders"]


def leaders(state: SubgraphState, count: int) -> list[Proposal]:
    """The `count` fastest known programs of a subgraph, to be timed once more; the untuned one is left out."""
    fastest = [candidate for candidate in state.fastest(count) if candidate.sketch != UNTUNED]
    nothing = np.zeros(0, np.float32)
    return [Proposal(CandidateBatch(c, state.features.get(c, nothing)), None, "again") for c in fastest]
