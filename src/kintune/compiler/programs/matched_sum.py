"""A workload that is one sum of products with constant weights, with what follows it in one block."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm

from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.programs.weighted_sum import DENSE, WeightedSum, find_weighted_sum

__all__ = ["MatchedSum", "match_sum"]


class MatchedSum(NamedTuple):
    """The workload with what follows its sum in one block, the sum, and that block; None where nothing follows."""

    module: tvm.IRModule
    found: WeightedSum
    epilogue: Epilogue | None

    @property
    def data_position(self) -> int:
        """The position of the data among the parameters; -1 where it is none of them."""
        return self._position(self.found.data)

    @property
    def result_position(self) -> int:
        """The position of what is stored among the parameters; -1 where it is none of them."""
        return self._position(self.found.result if self.epilogue is None else self.epilogue.target)

    @property
    def keepable(self) -> frozenset[int]:
        """The positions of the parameters of fp32 that may be of bf16: data, what is stored, and what is read with the
        sums.
        """
        read = [] if self.epilogue is None else self.epilogue.operands
        params = self.module["main"].params
        others = {at for at, parameter in enumerate(params) if any(parameter.same_as(each) for each in read)}
        found = {self.data_position, *others} - {self.found.position}
        if self.epilogue is None or self.epilogue.is_vectorised:
            found.add(self.result_position)
        return frozenset(at for at in found if at >= 0 and str(params[at].dtype) == "float32")

    def _position(self, buffer: Any) -> int:
        params = self.module["main"].params
        return next((at for at, parameter in enumerate(params) if parameter.same_as(buffer)), -1)


def match_sum(module: tvm.IRModule, kind: str = DENSE) -> MatchedSum | None:
    """The sum of this kind in a workload (function `main`) that has nothing else than what follows it; else None."""
    found = find_weighted_sum(module, kind)
    if found is None:
        return None
    if len(found.nests) == len(found.replaced):
        return MatchedSum(module, found, None)
    follows = joined(module, found.name)
    if follows is None:
        return None
    found = find_weighted_sum(follows[0], kind)
    if found is None or len(found.nests) != len(found.replaced) + 1:
        return None
    return MatchedSum(follows[0], found, follows[1])
