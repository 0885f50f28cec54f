"""The plan of a round: how many candidates of which subgraphs it selects."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Round", "RoundEntry", "at_most"]


class RoundEntry(msgspec.Struct, frozen=True):
    """`size` candidates of one subgraph; `how` is "rule" (warm-up), "search" (full round) or "foresee"."""

    workload: str
    size: int
    how: str


class Round(msgspec.Struct, frozen=True):
    """The round of this number, with an entry for each subgraph that gets candidates."""

    number: int
    entries: tuple[RoundEntry, ...]


def at_most(entries: Sequence[RoundEntry], trials: int) -> tuple[RoundEntry, ...]:
    """Return the first entries, with at most `trials` candidates in all; the last of them may be cut short."""
    kept: list[RoundEntry] = []
    for entry in entries:
        size = min(entry.size, trials)
        if size > 0:
            kept.append(msgspec.structs.replace(entry, size=size))
            trials -= size
    return tuple(kept)
