"""A round that was begun and is not measured yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kintune.search.plan import Round
from kintune.space.candidate import Candidate

__all__ = ["OpenRound"]


@dataclass
class OpenRound:
    """The candidates that are still awaited with their features, what was predicted of all, the best times before."""

    plan: Round
    pending: dict[Candidate, NDArray[np.float32]]
    predicted: Mapping[Candidate, float]
    before: Mapping[str, float]
