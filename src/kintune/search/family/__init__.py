"""Families: groups of similar subgraphs that share one cost model (FamilySeer, arXiv 2201.00194)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, get_args

from kintune.core.config import FamilyAlgorithm
from kintune.core.workload import Subject
from kintune.errors import InputError
from kintune.search.family import by_hash, by_op, individual, monolithic
from kintune.search.family.samples import Samples
from kintune.search.family.static import StaticFamilies

__all__ = ["Families", "FamilyOf", "Samples", "Subject", "algorithms", "families", "family_of"]


class Families(Protocol):
    """Groups the subgraphs of a network; deterministic for equal arguments.

    `dynamic` says whether the families depend on measurements.
    """

    dynamic: bool

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        """Return the family key of each workload, from all samples; `previous` is the last result, or empty."""
        ...


FamilyOf = Callable[[Subject], str]
"""Maps a subgraph to the key of its family."""

_ALGORITHMS: dict[str, FamilyOf] = {
    "op": by_op.family_of,
    "hash": by_hash.family_of,
    "ind": individual.family_of,
    "none": monolithic.family_of,
}


def algorithms() -> tuple[str, ...]:
    """Return the names of the family algorithms."""
    return get_args(FamilyAlgorithm)


def families(algorithm: str, *, seed: int = 0, threads: int = 1) -> Families:
    """Return the algorithm of that name; `seed` and `threads` are for those that train models.

    Raises:
        InputError: there is no such algorithm.
    """
    if algorithm != "measured":
        return StaticFamilies(family_of(algorithm))
    from kintune.search.family.measured import MeasuredFamilies  # imports XGBoost, which loads slowly

    return MeasuredFamilies(seed=seed, threads=threads)


def family_of(algorithm: str) -> FamilyOf:
    """Return the static algorithm of that name.

    Raises:
        InputError: there is no such static algorithm.
    """
    try:
        return _ALGORITHMS[algorithm]
    except KeyError:
        known = ", ".join(algorithms())
        raise InputError(f"unknown family algorithm {algorithm!r}; use one of: {known}") from None
