"""Which program of our own a sketch is of.  A trace names it; the rest of a trace stays opaque to the search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest

from kintune.core.candidate import Candidate, Sketch

__all__ = ["by_program", "in_turns", "program_of"]


def program_of(sketch: Sketch) -> str:
    """Return the name of the sketch's program with its version and variant; empty for one of MetaSchedule's."""
    return _program(sketch.trace)


def by_program(sketches: Iterable[Sketch]) -> dict[str, list[Sketch]]:
    """Return the sketches by program, in the order in which the programs occur first."""
    groups: dict[str, list[Sketch]] = {}
    for sketch in sketches:
        groups.setdefault(program_of(sketch), []).append(sketch)
    return groups


def in_turns(lists: Sequence[Sequence[Candidate]], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates, one of each list after the other."""
    rounds = zip_longest(*lists)
    return [candidate for each in rounds for candidate in each if candidate is not None][:limit]


@lru_cache(maxsize=4096)
def _program(trace: bytes) -> str:
    try:
        return str(json.loads(trace).get("program", ""))
    except (ValueError, AttributeError):
        return ""  # a trace of another space, in another format
