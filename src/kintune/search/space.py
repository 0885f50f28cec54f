"""The interface of search spaces to the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Sketch
from kintune.search.features.field import Field

__all__ = ["Draft", "SearchSpace"]


class Draft(NamedTuple):
    """A candidate with its features (1-D float32), verified or described by analytic features."""

    candidate: Candidate
    features: NDArray[np.float32]


class SearchSpace(Protocol):
    """The candidate programs of a set of workloads.  Methods have no side effects and are deterministic."""

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """Return the sketches of a workload."""
        ...

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """Return at most `limit` candidates that a rule proposes, the most promising first."""
        ...

    def fields(self, workload: str) -> Sequence[Field]:
        """Return the fields of a workload: its sketches whose candidates have analytic features."""
        ...

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        """Replay candidates; returns each with its features, perhaps with other decisions, or None if invalid."""
        ...
