"""The samples of one subgraph from which families are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kintune.core.workload import Subject

if TYPE_CHECKING:  # so that the names of algorithms can be used without importing NumPy
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Samples"]


class Samples(NamedTuple):
    """A subgraph's measured candidates.

    `features` has shape (n, width), `labels` (n,): relative speed, 1.0 for the best known program of the subgraph and
    0.0 for a failed one.  Both are empty before the first measurement.
    """

    subject: Subject
    features: NDArray[np.float32]
    labels: NDArray[np.float32]
