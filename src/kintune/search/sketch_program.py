"""The hand-written program of a sketch, if it has one, and the precision in which it computes.

Both are read from the sketch's trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest

from kintune.core.candidate import FULL_PRECISION, Candidate, Choice, Sketch

__all__ = ["by_program", "has_places", "in_turns", "narrow", "precision_of", "program_of"]


def program_of(sketch: Sketch) -> str:
    """Return the name of the sketch's hand-written program with its version and variant; empty for other sketches."""
    return _named(sketch.trace, "program")


def precision_of(sketch: Sketch) -> str:
    """Return the precision in which the sketch computes: "fp32", or a narrower one such as "bf16"."""
    return _named(sketch.trace, "precision") or FULL_PRECISION


def has_places(sketch: Sketch) -> bool:
    """Return whether the sketch is of an earlier program, whose decisions were places in lists: nothing is built of it.

    `kintune records upgrade` converts what was measured of it.
    """
    is_whole = program_of(sketch) and _named(sketch.trace, "insts") == "[]"
    return bool(is_whole and sketch.axes) and all(isinstance(axis, Choice) for axis in sketch.axes)


def narrow(sketches: Iterable[Sketch]) -> dict[str, str]:
    """Return the precisions of those sketches that compute with shorter numbers, by digest."""
    found = {sketch.digest: precision_of(sketch) for sketch in sketches}
    return {digest: precision for digest, precision in found.items() if precision != FULL_PRECISION}


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
def _named(trace: bytes, key: str) -> str:
    """Return the text under a key of a trace (JSON); empty without one."""
    try:
        return str(json.loads(trace).get(key, ""))
    except (ValueError, AttributeError):
        return ""  # a trace of another space, in another format
