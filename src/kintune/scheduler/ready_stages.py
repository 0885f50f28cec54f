"""The startable stages, in lanes: those of one lane need the same, at the same places, and lead to the same.

Whether the first of a lane can start is asked at most once until something it waits for becomes free: a lane without
room is *blocked* until the resources it names are given back, and with it those that need the same and lead elsewhere.
So a decision costs what has changed, whatever the number of jobs and devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kintune.core.stage import Demand

__all__ = ["Lane", "Lanes", "Waiting"]


class Waiting(Protocol):
    """A stage that may stand in a lane; `lane` is where it stands.

    Its `ticket` and `due_ticket` tell entries of heaps that count from those that were moved or taken out since.
    """

    lane: Lane | None
    ticket: int
    due_ticket: int


class _Group:
    """Lanes that differ only in where they lead: whoever of them starts takes the room of the others.

    Counts the `starts` of the group; `due` is a heap of who must come first after how many, and nobody must before
    there were `soonest`.
    """

    __slots__ = ("due", "lanes", "soonest", "starts", "waiting")

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.starts = 0
        self.due: list[tuple[int, int, Waiting]] = []
        self.soonest = 0
        self.waiting = 0

    def overdue(self) -> tuple[int, Waiting] | None:
        """The stage that others have gone before often enough, if there is one."""
        due = self.due
        while due and due[0][2].due_ticket != due[0][1]:
            heapq.heappop(due)
        if not due:
            return None
        self.soonest, _, stage = due[0]
        return (self.soonest, stage) if self.soonest <= self.starts else None


class Lane:
    """What its stages have in common: demand, the host they are bound to, and the device type that they lead to.

    There is one of each kind, so lanes are compared by identity.  `heap` has its `count` stages by rank.
    """

    __slots__ = ("count", "demand", "group", "heap", "home", "passed", "reasons", "then")

    def __init__(self, demand: Demand, home: str | None, then: str | None, group: _Group) -> None:
        self.demand = demand
        self.home = home
        self.then = then
        self.heap: list[tuple[Any, int, Waiting]] = []
        self.count = 0
        self.group = group
        self.reasons: tuple[str, ...] = ()  # what must be given back before it has room, while it is blocked
        self.passed = 0  # how often others have got what it waits for

    def __repr__(self) -> str:
        return f"Lane({self.demand}, {self.home!r}, {self.then!r})"


class Lanes:
    """Startable stages by lane, in the order of their ranks; smaller ranks first, equal ones as they came."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[Demand, str | None, str | None], Lane] = {}
        self._groups: dict[tuple[Demand, str | None], _Group] = {}
        self._open: dict[Lane, None] = {}
        self._blocked: dict[str, dict[Lane, None]] = {}
        self._bound: dict[str, int] = {}
        self._issued = 0

    def lane(self, demand: Demand, home: str | None, then: str | None) -> Lane:
        """The one lane of this kind."""
        key = (demand, home, then)
        lane = self._lanes.get(key)
        if lane is None:
            group = self._groups.get((demand, home))
            if group is None:
                group = self._groups[demand, home] = _Group()
            lane = self._lanes[key] = Lane(demand, home, then, group)
            group.lanes.append(lane)
        return lane

    def put(self, stage: Waiting, lane: Lane, rank: Any, patience: int | None = None) -> None:
        """Put a stage in, or move it within its lane.

        It comes first once so many others with the same demand and home have started; never if `patience` is None.
        """
        self._issued += 1
        if stage.lane is None:
            stage.lane = lane
            if patience is not None:
                self._wait(stage, lane.group, patience)
            if not lane.count:
                self._open[lane] = None
                if lane.home is not None:
                    self._bound[lane.home] = self._bound.get(lane.home, 0) + 1
            lane.count += 1
        stage.ticket = self._issued
        heapq.heappush(lane.heap, (rank, self._issued, stage))
        if len(lane.heap) > 2 * lane.count + 16:
            lane.heap = [entry for entry in lane.heap if entry[2].ticket == entry[1]]
            heapq.heapify(lane.heap)

    def discard(self, stage: Waiting) -> Lane | None:
        """Take a stage out, if it is there; returns its lane if nothing is left there."""
        lane = stage.lane
        if lane is None:
            return None
        stage.lane = None
        stage.ticket = 0
        if stage.due_ticket:
            stage.due_ticket = 0
            lane.group.waiting -= 1
        lane.count -= 1
        if lane.count:
            return None
        self._open.pop(lane, None)
        self._unblock(lane)
        if lane.home is not None:
            self._bound[lane.home] -= 1
        lane.passed = 0
        lane.heap.clear()
        return lane

    def first(self, lane: Lane) -> tuple[Any, Waiting] | None:
        """The lane's first stage, with what it is ranked by among those of all lanes: who is overdue comes first."""
        group = lane.group
        if group.starts >= group.soonest and group.waiting:
            overdue = group.overdue()
            if overdue is not None and overdue[1].lane is lane:
                return (0, overdue[0]), overdue[1]
        heap = lane.heap
        while heap:
            rank, ticket, stage = heap[0]
            if stage.ticket == ticket:
                return (1, rank), stage
            heapq.heappop(heap)
        return None

    def _wait(self, stage: Waiting, group: _Group, patience: int) -> None:
        due = group.starts + patience
        group.soonest = min(group.soonest, due) if group.waiting else due
        group.waiting += 1
        stage.due_ticket = self._issued
        heapq.heappush(group.due, (due, self._issued, stage))
        if len(group.due) > 2 * group.waiting + 16:
            group.due = [entry for entry in group.due if entry[2].due_ticket == entry[1]]
            heapq.heapify(group.due)

    def must_wait(self, stage: Waiting) -> bool:
        """Whether somebody else must come before this stage."""
        overdue = None if stage.lane is None else stage.lane.group.overdue()
        return overdue is not None and overdue[1] is not stage

    def bound_to(self, host: str | None) -> bool:
        """Whether somebody waits who can run on this host alone."""
        return self._bound.get(host or "", 0) > 0

    def open(self) -> Iterable[Lane]:
        """The lanes that are not known to have no room."""
        return list(self._open)

    def is_open(self, lane: Lane) -> bool:
        """Whether it is one of those."""
        return lane in self._open

    def block(self, lane: Lane, until: tuple[str, ...], has_claim: Callable[[Lane], bool]) -> None:
        """There is no room for the lane until one of the resources is given back, nor for twins without a claim."""
        for twin in lane.group.lanes:
            if twin in self._open and (twin is lane or not has_claim(twin)):
                del self._open[twin]
                twin.reasons = until
                for name in until:
                    self._blocked.setdefault(name, {})[twin] = None

    def freed(self, names: Iterable[str], cores: int | None = None) -> None:
        """These resources were given back, in part or in full; there are `cores` now, if nothing else has changed."""
        for name in names:
            waiting = self._blocked.get(name)
            for lane in list(waiting) if waiting else ():
                if cores is None or lane.demand.cores <= cores:
                    self._unblock(lane)
                    self._open[lane] = None

    def pass_by(self, names: Iterable[str]) -> Iterable[tuple[Lane, int]]:
        """Somebody else got something of these resources: the lanes that wait for them, and how often that was so."""
        seen: dict[Lane, None] = {}
        for name in names:
            seen.update(self._blocked.get(name, ()))
        for lane in seen:
            lane.passed += 1
        return [(lane, lane.passed) for lane in seen]

    def served(self, lane: Lane) -> None:
        """One of the lane has started."""
        lane.passed = 0
        lane.group.starts += 1

    def _unblock(self, lane: Lane) -> None:
        for name in lane.reasons:
            waiting = self._blocked[name]
            waiting.pop(lane, None)
            if not waiting:
                del self._blocked[name]
        lane.reasons = ()
