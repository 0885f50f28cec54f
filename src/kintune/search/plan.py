"""What a round is to select."""

from __future__ import annotations

import msgspec

__all__ = ["Entry", "Round"]


class Entry(msgspec.Struct, frozen=True):
    """`size` candidates of one subgraph, chosen by `how`: "rule", "search" or "foresee"."""

    workload: str
    size: int
    how: str


class Round(msgspec.Struct, frozen=True):
    """The round of this number; a survey has an entry for every subgraph, a later one for those that share it."""

    number: int
    entries: tuple[Entry, ...]
