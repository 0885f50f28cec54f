"""Places buffers with known lifetimes in one block of memory, so that those that are never live together share bytes.

The method is "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020):
the largest buffer first, each into the smallest gap that holds it between those placed before that are live with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from kintune.runtime.package import ALIGNMENT

__all__ = ["Arena", "Buffer", "aligned", "largest_live_bytes", "place_buffers", "place_in_a_row"]


class Buffer(NamedTuple):
    """A buffer of `nbytes` bytes that is in use from operation number `first` to number `last`, both included."""

    nbytes: int
    first: int
    last: int

    def is_live_with(self, other: Buffer) -> bool:
        """Whether there is an operation during which both are in use."""
        return self.first <= other.last and other.first <= self.last


class Arena(NamedTuple):
    """The offsets in bytes of buffers, multiples of `ALIGNMENT`, in a block of `nbytes` bytes."""

    offsets: tuple[int, ...]
    nbytes: int


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT` from `nbytes` on."""
    return nbytes + -nbytes % ALIGNMENT


def place_buffers(buffers: Sequence[Buffer]) -> Arena:
    """Choose the offsets of buffers; no two that are live together overlap.  Empty buffers get offset 0."""
    offsets = [0] * len(buffers)
    placed: list[int] = []
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].nbytes, buffers[i].first, i))
    for number in order:
        buffer = buffers[number]
        if buffer.nbytes == 0:
            continue
        taken = sorted(
            (offsets[other], offsets[other] + aligned(buffers[other].nbytes))
            for other in placed
            if buffers[other].is_live_with(buffer)
        )
        offsets[number] = _best_gap(taken, aligned(buffer.nbytes))
        placed.append(number)
    return Arena(tuple(offsets), max((offsets[i] + aligned(buffers[i].nbytes) for i in placed), default=0))


def _best_gap(taken: Iterable[tuple[int, int]], nbytes: int) -> int:
    """The start of the smallest gap of at least `nbytes` between ranges that are sorted; else the end of them all."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (best is None or gap < best[0]):
            best = gap, end
        end = max(end, stop)
    return end if best is None else best[1]


def largest_live_bytes(buffers: Sequence[Buffer]) -> int:
    """The largest sum of the sizes, rounded up to `ALIGNMENT`, of buffers that are in use at once.

    No placement needs less memory.
    """
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first] = changes.get(buffer.first, 0) + aligned(buffer.nbytes)
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - aligned(buffer.nbytes)
    return max(accumulate(changes[time] for time in sorted(changes)), default=0)


def place_in_a_row(sizes: Iterable[int]) -> Arena:
    """The offsets of buffers of these sizes in bytes one after another, as packed weights lie in a file."""
    offsets, end = [], 0
    for nbytes in sizes:
        offsets.append(end)
        end = aligned(end + nbytes)
    return Arena(tuple(offsets), end)
