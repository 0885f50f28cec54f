"""A workload that is one sum of products with constant weights, with what follows it in one block."""

from __future__ import annotations

from typing import NamedTuple

import tvm

from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.programs.weighted_sum import WeightedSum, find_weighted_sum

__all__ = ["MatchedSum", "match_sum"]


class MatchedSum(NamedTuple):
    """The workload with what follows in one block, its sum, and that block; None where nothing follows."""

    module: tvm.IRModule
    found: WeightedSum
    epilogue: Epilogue | None


def match_sum(module: tvm.IRModule) -> MatchedSum | None:
    """The sum of a workload (function `main`); None where it has none, or more than it and what follows."""
    found = find_weighted_sum(module)
    if found is None:
        return None
    if len(found.nests) == len(found.replaced):
        return MatchedSum(module, found, None)
    follows = joined(module, found.name)
    if follows is None:
        return None
    found = find_weighted_sum(follows[0])
    if found is None or len(found.nests) != len(found.replaced) + 1:
        return None
    return MatchedSum(follows[0], found, follows[1])
