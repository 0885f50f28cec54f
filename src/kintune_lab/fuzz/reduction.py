"""Delta debugging: the smallest part of a graph that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["reduced"]


def reduced(whole: Sequence[int], fails: Callable[[Sequence[int]], bool], most: int = 60) -> list[int]:
    """A part of `whole` that fails, such that it no longer does without any one of its elements.

    Single elements are tried first, as most faults have one cause; then ever smaller parts are left out (Zeller and
    Hildebrandt, "Simplifying and isolating failure-inducing input", 2002).  At most `most` parts are tried.
    """
    left = most

    def still(part: Sequence[int]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(part) and fails(part)

    found = list(whole)
    if len(found) > 1:
        for element in reversed(found):
            if still([element]):
                return [element]
    parts = 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if still(rest):
                found, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(found):
                break
            parts = min(2 * parts, len(found))
    return found
