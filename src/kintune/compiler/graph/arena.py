"""Places buffers with known lifetimes in one block of memory, so that those that are never live together share bytes.

The method is "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020):
the largest buffer first, each into the smallest gap that holds it between those placed before that are live with it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from kintune.runtime.package import ALIGNMENT

__all__ = ["Arena", "Buffer", "aligned", "place_buffers", "place_in_a_row"]


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
    placed = _Placed()
    nbytes = 0
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].nbytes, buffers[i].first, i))
    for number in order:
        buffer = buffers[number]
        if buffer.nbytes == 0:
            continue
        start = _best_gap(sorted(placed.live_with(buffer)), aligned(buffer.nbytes))
        offsets[number], end = start, start + aligned(buffer.nbytes)
        placed.add(buffer, start, end)
        nbytes = max(nbytes, end)
    return Arena(tuple(offsets), nbytes)


class _Placed:
    """The placed buffers, indexed so that those live with a given one are found without a search through all of them.

    There is one list for each bit length of the lifetime (`last - first`), sorted by `first`.  A buffer in the list of
    b bits that is in use at an operation has begun less than 2^b operations before it.
    """

    def __init__(self) -> None:
        self._by_bits: dict[int, list[tuple[int, int, int, Buffer]]] = {}

    def add(self, buffer: Buffer, start: int, end: int) -> None:
        """Place a buffer at the bytes from `start` to `end`."""
        alike = self._by_bits.setdefault((buffer.last - buffer.first).bit_length(), [])
        insort(alike, (buffer.first, start, end, buffer))

    def live_with(self, buffer: Buffer) -> Iterator[tuple[int, int]]:
        """The range of bytes of each placed buffer that is live with this one."""
        first = itemgetter(0)
        for bits, alike in self._by_bits.items():
            earliest = bisect_right(alike, buffer.first - (1 << bits), key=first)
            behind = bisect_right(alike, buffer.last, key=first)
            for _, start, end, other in alike[earliest:behind]:
                if other.is_live_with(buffer):
                    yield start, end


def _best_gap(taken: Iterable[tuple[int, int]], nbytes: int) -> int:
    """The start of the smallest gap of at least `nbytes` between sorted ranges, or the end of them all if none fits."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (best is None or gap < best[0]):
            best = gap, end
        end = max(end, stop)
    return end if best is None else best[1]


def place_in_a_row(sizes: Iterable[int]) -> Arena:
    """The offsets of buffers of these sizes in bytes, one after another, as packed weights are stored in a file."""
    offsets, end = [], 0
    for nbytes in sizes:
        offsets.append(end)
        end = aligned(end + nbytes)
    return Arena(tuple(offsets), end)
