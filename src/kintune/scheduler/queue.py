"""A priority queue whose entries can be moved and taken out, each in O(log n)."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

__all__ = ["IndexedQueue"]

Entry = TypeVar("Entry", bound=Hashable)


class IndexedQueue(Generic[Entry]):
    """Entries ordered by the keys they were put in with, smallest first; each entry is there at most once.

    Keys of one queue must be comparable with each other.  Equal keys are served in the order in which they came.
    """

    __slots__ = ("_heap", "_issued", "_tickets")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Entry]] = []
        self._tickets: dict[Entry, int] = {}
        self._issued = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, entry: object) -> bool:
        return entry in self._tickets

    def put(self, entry: Entry, key: Any) -> None:
        """Put `entry` in, or move it to where `key` belongs."""
        self._issued += 1
        self._tickets[entry] = self._issued
        heapq.heappush(self._heap, (key, self._issued, entry))
        if len(self._heap) > 2 * len(self._tickets) + 16:
            self._heap = [item for item in self._heap if self._tickets.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def discard(self, entry: Entry) -> None:
        """Take `entry` out, if it is there."""
        self._tickets.pop(entry, None)

    def first(self) -> Entry | None:
        """The entry with the smallest key, or None."""
        found = self.peek()
        return None if found is None else found[1]

    def peek(self) -> tuple[Any, Entry] | None:
        """The smallest key and its entry, or None."""
        heap, tickets = self._heap, self._tickets
        while heap:
            key, ticket, entry = heap[0]
            if tickets.get(entry) == ticket:
                return key, entry
            heapq.heappop(heap)
        return None

    def in_order(self) -> list[Entry]:
        """All entries, smallest key first; O(n log n), for the rare look beyond the first."""
        return [
            entry
            for _, ticket, entry in sorted(self._heap, key=lambda item: item[:2])
            if self._tickets.get(entry) == ticket
        ]
