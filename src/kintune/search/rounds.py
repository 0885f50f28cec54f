"""A round that was begun and is not measured yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.core.plan import Round
from kintune.search.cost_model import Trees

__all__ = ["Learnt", "OpenRound"]


@dataclass
class OpenRound:
    """The candidates that are still awaited with their features, what was predicted of all, the best times before.

    `known` are those of its candidates that had been measured when it began, `fresh` the others; `again_us` is what
    the known ones took this time, as far as they ran.
    """

    plan: Round
    pending: dict[Candidate, NDArray[np.float32]]
    predicted: Mapping[Candidate, float]
    before: dict[str, float]
    known: frozenset[Candidate] = frozenset()
    fresh: tuple[Candidate, ...] = ()
    again_us: dict[Candidate, float] = field(default_factory=dict)


class Learnt(NamedTuple):
    """What an update yields.

    Trained models by family, the family of each workload where that has changed, and the rounds that were learnt from.
    """

    models: dict[str, Trees]
    families: dict[str, str]
    rounds: tuple[int, ...]
