"""What the search needs of a search space, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Sketch
from kintune.search.features.field import Field

__all__ = ["CandidateBatch", "SearchSpace"]


class CandidateBatch(NamedTuple):
    """A candidate that is known to be a valid program: as replayed, with its features (1-D float32)."""

    candidate: Candidate
    features: NDArray[np.float32]


class SearchSpace(Protocol):
    """The programs that can be tried for a set of workloads.  Free of side effects; equal calls give equal answers."""

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """The sketches of a workload."""
        ...

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """At most `limit` candidates that a rule proposes, the most promising first."""
        ...

    def fields(self, workload: str) -> Sequence[Field]:
        """The sketches whose candidates can be described in bulk, and how."""
        ...

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[CandidateBatch | None]:
        """For each candidate the program it makes, perhaps with other decisions than asked; None if it makes none."""
        ...
