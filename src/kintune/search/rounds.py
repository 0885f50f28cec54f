"""Open rounds (begun and not measured yet), and the result of an update."""

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
    """A round in progress.

    `pending` has the candidates without an outcome, with their features; `predicted` the scores of all; `before` the
    best time of each workload when the round began.  `known` are the candidates that had been measured by then,
    `fresh` the others.  `again_us` has the new times of known candidates that ran.
    """

    plan: Round
    pending: dict[Candidate, NDArray[np.float32]]
    predicted: Mapping[Candidate, float]
    before: dict[str, float]
    known: frozenset[Candidate] = frozenset()
    fresh: tuple[Candidate, ...] = ()
    again_us: dict[Candidate, float] = field(default_factory=dict)


class Learnt(NamedTuple):
    """The result of an update: trained models by family, changed families by workload, and the rounds learnt from."""

    models: dict[str, Trees]
    families: dict[str, str]
    rounds: tuple[int, ...]
