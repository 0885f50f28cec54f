"""Families: which subgraphs are kin and share one cost model (FamilySeer, arXiv 2201.00194)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kintune.core.workload import Subject
from kintune.errors import InputError
from kintune.search.family import by_hash, by_op, individual, monolithic
from kintune.search.family.samples import Samples
from kintune.search.family.static import StaticFamilies

__all__ = ["Families", "FamilyOf", "Samples", "Subject", "algorithms", "check_algorithm", "families", "family_of"]


class Families(Protocol):
    """Groups the subgraphs of a network; deterministic for equal arguments.

    `dynamic` says whether what was measured may change the answer.
    """

    dynamic: bool

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        """The family's key of each workload, from all that was measured; `previous` is the last answer, or empty."""
        ...


FamilyOf = Callable[[Subject], str]
"""Maps a subgraph to the key of its family; subgraphs with equal keys are kin."""

_ALGORITHMS: dict[str, FamilyOf] = {
    "op": by_op.family_of,
    "hash": by_hash.family_of,
    "ind": individual.family_of,
    "none": monolithic.family_of,
}


def algorithms() -> tuple[str, ...]:
    """The names of the family algorithms."""
    return (*_ALGORITHMS, "measured")


def families(algorithm: str, *, seed: int = 0, threads: int = 1) -> Families:
    """The algorithm of that name; raises InputError for an unknown one.

    `seed` and `threads` serve those that train models to find out who is kin.
    """
    if algorithm != "measured":
        return StaticFamilies(family_of(algorithm))
    from kintune.search.family.measured import (
        MeasuredFamilies,  # trains models, which takes a library that loads slowly
    )

    return MeasuredFamilies(seed=seed, threads=threads)


def check_algorithm(algorithm: str) -> None:
    """Raise InputError when there is no algorithm of that name."""
    if algorithm not in algorithms():
        family_of(algorithm)


def family_of(algorithm: str) -> FamilyOf:
    """The static algorithm of that name; raises InputError for an unknown one."""
    try:
        return _ALGORITHMS[algorithm]
    except KeyError:
        known = ", ".join(algorithms())
        raise InputError(f"unknown family algorithm {algorithm!r}; use one of: {known}") from None
