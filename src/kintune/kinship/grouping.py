"""The families of subgraphs, by whatever algorithm."""

from __future__ import annotations

from collections.abc import Mapping

from kintune.kinship.samples import Measured
from kintune.search.family import family_of

__all__ = ["group"]


def group(algorithm: str, measured: Mapping[str, Measured]) -> dict[str, str]:
    """Workload -> key of its family."""
    kin = family_of(algorithm)
    return {workload: kin(samples.subject) for workload, samples in measured.items()}
