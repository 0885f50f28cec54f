"""The startable stages in ready queues.

The stages of one queue have the same demand, home host, and device type of the stage that follows.  A queue whose first
stage does not fit is *blocked*, with the queues of equal demand and home, until one of the resources that it waits for
is released.  So the cost of a decision depends on what has changed and not on the number of jobs and devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
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


class _Group:
    """The queues of equal demand and home, which compete for the same resources.

    `starts` counts the stages of the group that were started; `due` is a heap of (number of starts after which the
    stage goes first, ticket, stage); `soonest` is a lower bound of the first entry.
    """

    __slots__ = ("due", "queues", "soonest", "starts", "waiting")

    def __init__(self) -> None:
        self.queues: list[ReadyQueue] = []
        self.starts = 0
        self.due: list[tuple[int, int, QueuedStage]] = []
        self.soonest = 0
        self.waiting = 0

    def overdue(self) -> tuple[int, QueuedStage] | None:
        """Return the stage that must go next, with the number of starts at which it was due, if there is one."""
        due = self.due
        while due and due[0][2].due_ticket != due[0][1]:
            heapq.heappop(due)
        if not due:
            return None
        self.soonest, _, stage = due[0]
        return (self.soonest, stage) if self.soonest <= self.starts else None


class ReadyQueue:
    """Stages with the same demand, home host (or None), and device type of the stage that follows (or None).

    There is one queue of each kind, so queues are compared by identity.  `heap` orders its `count` stages by rank.
    """

    __slots__ = ("count", "demand", "group", "heap", "home", "passed", "reasons", "then")

    def __init__(self, demand: Demand, home: str | None, then: str | None, group: _Group) -> None:
        self.demand = demand
        self.home = home
        self.then = then
        self.heap: list[tuple[Any, int, QueuedStage]] = []
        self.count = 0
        self.group = group
        self.reasons: tuple[str, ...] = ()  # tokens of the resources that it waits for while it is blocked
        self.passed = 0  # how often other stages got resources that it waits for

    def __repr__(self) -> str:
        return f"ReadyQueue({self.demand}, {self.home!r}, {self.then!r})"


class ReadyQueues:
    """All ready queues; smaller ranks go first, equal ones in order of insertion."""

    def __init__(self) -> None:
        self._queues: dict[tuple[Demand, str | None, str | None], ReadyQueue] = {}
        self._groups: dict[tuple[Demand, str | None], _Group] = {}
        self._open: dict[ReadyQueue, None] = {}  # non-empty and not blocked, in order of insertion
        self._blocked: dict[str, dict[ReadyQueue, None]] = {}  # by token
        self._bound: dict[str, int] = {}  # by host, the number of non-empty queues that are bound to it
        self._issued = 0

    def queue_for(self, demand: Demand, home: str | None, then: str | None) -> ReadyQueue:
        """Return the queue of this kind, making it if needed; O(1)."""
        key = (demand, home, then)
        queue = self._queues.get(key)
        if queue is None:
            group = self._groups.get((demand, home))
            if group is None:
                group = self._groups[demand, home] = _Group()
            queue = self._queues[key] = ReadyQueue(demand, home, then, group)
            group.queues.append(queue)
        return queue

    def put(self, stage: QueuedStage, queue: ReadyQueue, rank: Any, patience: int | None = None) -> None:
        """Insert a stage, or move it within its queue; O(log n).

        The stage goes first once `patience` others of equal demand and home have started; None means never.
        """
        self._issued += 1
        if stage.queue is None:
            stage.queue = queue
            if patience is not None:
                self._wait(stage, queue.group, patience)
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
            queue.group.waiting -= 1
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
        group = queue.group
        if group.starts >= group.soonest and group.waiting:
            overdue = group.overdue()
            if overdue is not None and overdue[1].queue is queue:
                return (0, overdue[0]), overdue[1]
        heap = queue.heap
        while heap:
            rank, ticket, stage = heap[0]
            if stage.ticket == ticket:
                return (1, rank), stage
            heapq.heappop(heap)
        return None

    def _wait(self, stage: QueuedStage, group: _Group, patience: int) -> None:
        due = group.starts + patience
        group.soonest = min(group.soonest, due) if group.waiting else due
        group.waiting += 1
        stage.due_ticket = self._issued
        heapq.heappush(group.due, (due, self._issued, stage))
        if len(group.due) > 2 * group.waiting + 16:
            group.due = [entry for entry in group.due if entry[2].due_ticket == entry[1]]
            heapq.heapify(group.due)

    def must_wait(self, stage: QueuedStage) -> bool:
        """Return whether another stage of the group is overdue and must go before this one."""
        overdue = None if stage.queue is None else stage.queue.group.overdue()
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

    def block(self, queue: ReadyQueue, until: tuple[str, ...], has_claim: Callable[[ReadyQueue], bool]) -> None:
        """Block the queue and the others of its group without a claim until one of the tokens `until` is freed."""
        for other in queue.group.queues:
            if other in self._open and (other is queue or not has_claim(other)):
                del self._open[other]
                other.reasons = until
                for name in until:
                    self._blocked.setdefault(name, {})[other] = None

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
        queue.group.starts += 1

    def _unblock(self, queue: ReadyQueue) -> None:
        for name in queue.reasons:
            waiting = self._blocked[name]
            waiting.pop(queue, None)
            if not waiting:
                del self._blocked[name]
        queue.reasons = ()
