"""The startable stages in ready queues.

The stages of one queue have the same demand and home host.  A queue whose first stage does not fit is *blocked* until
one of the resources that it waits for is released.  So the cost of a decision depends on what has changed and not on
the number of jobs and devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Protocol

from kintune.core.stage import Demand

__all__ = ["QueuedStage", "ReadyQueue", "ReadyQueues"]


class QueuedStage(Protocol):
    """A stage that can be in a ready queue; `queue` is the one that it is in.

    Heap entries whose ticket differs from `ticket` or `due_ticket` are stale and are skipped.
    """

    queue: ReadyQueue | None
    ticket: int
    due_ticket: int


class ReadyQueue:
    """Stages with the same demand and home host (or None), which compete for the same resources.

    There is one queue of each kind, so queues are compared by identity.  `heap` orders its `count` stages by rank.
    `starts` counts the stages of the queue that were started; `due` is a heap of (number of starts after which the
    stage goes first, ticket, stage), with `patient` stages; `soonest` is a lower bound of the first entry.
    """

    __slots__ = ("count", "demand", "due", "heap", "home", "passed", "patient", "reasons", "soonest", "starts")

    def __init__(self, demand: Demand, home: str | None) -> None:
        self.demand = demand
        self.home = home
        self.heap: list[tuple[Any, int, QueuedStage]] = []
        self.count = 0
        self.starts = 0
        self.due: list[tuple[int, int, QueuedStage]] = []
        self.patient = 0
        self.soonest = 0
        self.reasons: tuple[str, ...] = ()  # tokens of the resources that it waits for while it is blocked
        self.passed = 0  # how often other stages got resources that it waits for

    def __repr__(self) -> str:
        return f"ReadyQueue({self.demand}, {self.home!r})"

    def overdue(self) -> tuple[int, QueuedStage] | None:
        """Return the stage that must go next, with the number of starts at which it was due, if there is one."""
        due = self.due
        while due and due[0][2].due_ticket != due[0][1]:
            heapq.heappop(due)
        if not due:
            return None
        self.soonest, _, stage = due[0]
        return (self.soonest, stage) if self.soonest <= self.starts else None


class ReadyQueues:
    """All ready queues; smaller ranks go first, equal ones in order of insertion."""

    def __init__(self) -> None:
        self._queues: dict[tuple[Demand, str | None], ReadyQueue] = {}
        self._open: dict[ReadyQueue, None] = {}  # non-empty and not blocked, in order of insertion
        self._blocked: dict[str, dict[ReadyQueue, None]] = {}  # by token
        self._bound: dict[str, int] = {}  # by host, the number of non-empty queues that are bound to it
        self._issued = 0

    def queue_for(self, demand: Demand, home: str | None) -> ReadyQueue:
        """Return the queue of this kind, making it if needed; O(1)."""
        queue = self._queues.get((demand, home))
        if queue is None:
            queue = self._queues[demand, home] = ReadyQueue(demand, home)
        return queue

    def put(self, stage: QueuedStage, queue: ReadyQueue, rank: Any, patience: int | None = None) -> None:
        """Insert a stage, or move it within its queue; O(log n).

        The stage goes first once `patience` others of the queue have started; None means never.
        """
        self._issued += 1
        if stage.queue is None:
            stage.queue = queue
            if patience is not None:
                self._wait(stage, queue, patience)
            if not queue.count:
                self._open[queue] = None
                if queue.home is not None:
                    self._bound[queue.home] = self._bound.get(queue.home, 0) + 1
            queue.count += 1
        stage.ticket = self._issued
        heapq.heappush(queue.heap, (rank, self._issued, stage))
        if len(queue.heap) > 2 * queue.count + 16:
            queue.heap = [entry for entry in queue.heap if entry[2].ticket == entry[1]]
            heapq.heapify(queue.heap)

    def discard(self, stage: QueuedStage) -> ReadyQueue | None:
        """Remove a stage if it is present; returns its queue if that is now empty.  O(1)."""
        queue = stage.queue
        if queue is None:
            return None
        stage.queue = None
        stage.ticket = 0
        if stage.due_ticket:
            stage.due_ticket = 0
            queue.patient -= 1
        queue.count -= 1
        if queue.count:
            return None
        self._open.pop(queue, None)
        self._unblock(queue)
        if queue.home is not None:
            self._bound[queue.home] -= 1
        queue.passed = 0
        queue.heap.clear()
        return queue

    def first(self, queue: ReadyQueue) -> tuple[Any, QueuedStage] | None:
        """Return the first stage of the queue and its rank among all queues; overdue stages go first.  O(log n)."""
        if queue.starts >= queue.soonest and queue.patient:
            overdue = queue.overdue()
            if overdue is not None:
                return (0, overdue[0]), overdue[1]
        heap = queue.heap
        while heap:
            rank, ticket, stage = heap[0]
            if stage.ticket == ticket:
                return (1, rank), stage
            heapq.heappop(heap)
        return None

    def _wait(self, stage: QueuedStage, queue: ReadyQueue, patience: int) -> None:
        due = queue.starts + patience
        queue.soonest = min(queue.soonest, due) if queue.patient else due
        queue.patient += 1
        stage.due_ticket = self._issued
        heapq.heappush(queue.due, (due, self._issued, stage))
        if len(queue.due) > 2 * queue.patient + 16:
            queue.due = [entry for entry in queue.due if entry[2].due_ticket == entry[1]]
            heapq.heapify(queue.due)

    def must_wait(self, stage: QueuedStage) -> bool:
        """Return whether another stage of its queue is overdue and must go before this one."""
        overdue = None if stage.queue is None else stage.queue.overdue()
        return overdue is not None and overdue[1] is not stage

    def bound_to(self, host: str | None) -> bool:
        """Return whether a startable stage is bound to this host."""
        return self._bound.get(host or "", 0) > 0

    def ready(self) -> Iterable[ReadyQueue]:
        """Return the non-empty queues that are not blocked, the longest known first."""
        return list(self._open)

    def is_open(self, queue: ReadyQueue) -> bool:
        """Return whether the queue is non-empty and not blocked."""
        return queue in self._open

    def block(self, queue: ReadyQueue, until: tuple[str, ...]) -> None:
        """Block an open queue until one of the tokens `until` is freed."""
        del self._open[queue]
        queue.reasons = until
        for name in until:
            self._blocked.setdefault(name, {})[queue] = None

    def freed(self, names: Iterable[str], cores: int | None = None) -> None:
        """Unblock the queues that wait for these tokens; with `cores`, only those that demand at most so many."""
        for name in names:
            waiting = self._blocked.get(name)
            for queue in list(waiting) if waiting else ():
                if cores is None or queue.demand.cores <= cores:
                    self._unblock(queue)
                    self._open[queue] = None

    def passed_by(self, names: Iterable[str]) -> Iterable[tuple[ReadyQueue, int]]:
        """Note that a stage got some of these resources; returns the queues that wait for them with their counts."""
        seen: dict[ReadyQueue, None] = {}
        for name in names:
            seen.update(self._blocked.get(name, ()))
        for queue in seen:
            queue.passed += 1
        return [(queue, queue.passed) for queue in seen]

    def started(self, queue: ReadyQueue) -> None:
        """Note that a stage of the queue was started."""
        queue.passed = 0
        queue.starts += 1

    def _unblock(self, queue: ReadyQueue) -> None:
        for name in queue.reasons:
            waiting = self._blocked[name]
            waiting.pop(queue, None)
            if not waiting:
                del self._blocked[name]
        queue.reasons = ()
