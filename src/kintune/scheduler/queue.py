"""A priority queue whose entries can be moved and removed in O(log n)."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

__all__ = ["IndexedQueue"]

Entry = TypeVar("Entry", bound=Hashable)


class IndexedQueue(Generic[Entry]):
    """Entries ordered by key, smallest first; each entry is present at most once.

    Keys of one queue must be comparable with each other.  Entries with equal keys are ordered by insertion.
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
        """Add `entry`, or move it to the position of `key`; amortised O(log n)."""
        self._issued += 1
        self._tickets[entry] = self._issued
        heapq.heappush(self._heap, (key, self._issued, entry))
        if len(self._heap) > 2 * len(self._tickets) + 16:
            self._heap = [item for item in self._heap if self._tickets.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def discard(self, entry: Entry) -> None:
        """Remove `entry` if it is present; O(1)."""
        self._tickets.pop(entry, None)

    def first(self) -> Entry | None:
        """Return the entry with the smallest key, or None; amortised O(log n)."""
        found = self.peek()
        return None if found is None else found[1]

    def peek(self) -> tuple[Any, Entry] | None:
        """Return the smallest key and its entry, or None; amortised O(log n)."""
        heap, tickets = self._heap, self._tickets
        while heap:
            key, ticket, entry = heap[0]
            if tickets.get(entry) == ticket:
                return key, entry
            heapq.heappop(heap)
        return None

    def in_order(self) -> list[Entry]:
        """Return all entries, smallest key first; O(n log n)."""
        return [entry for _, ticket, entry in sorted(self._heap) if self._tickets.get(entry) == ticket]
