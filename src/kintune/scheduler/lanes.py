"""The startable stages, in lanes: those of one lane need the same, at the same places, and lead to the same.

Whether the first of a lane can start is asked at most once until something it waits for becomes free: a lane without
room is *blocked* until the resources it names are given back.  So a decision costs what has changed, whatever the
number of jobs and devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.stage import Demand, StageKey

__all__ = ["Lane", "Lanes"]


class Lane(NamedTuple):
    """What its stages have in common: demand, the host they are bound to, and the device type that they lead to."""

    demand: Demand
    home: str | None
    then: str | None


class Lanes:
    """Startable stages by lane, in the order of their ranks; smaller ranks first."""

    def __init__(self) -> None:
        self._queues: dict[Lane, IndexedQueue[StageKey]] = {}
        self._lanes: dict[StageKey, Lane] = {}
        self._open: dict[Lane, None] = {}
        self._blocked: dict[str, dict[Lane, None]] = {}
        self._reasons: dict[Lane, tuple[str, ...]] = {}
        self._passed: dict[Lane, int] = {}
        self._bound: dict[str, int] = {}

    def put(self, stage: StageKey, lane: Lane, rank: Any) -> None:
        """Put a stage in, or move it within its lane."""
        queue = self._queues.get(lane)
        if queue is None:
            queue = self._queues[lane] = IndexedQueue()
            self._open[lane] = None
            self._count_bound(lane, 1)
        queue.put(stage, rank)
        self._lanes[stage] = lane

    def discard(self, stage: StageKey) -> Lane | None:
        """Take a stage out, if it is there; returns its lane if nothing is left there."""
        lane = self._lanes.pop(stage, None)
        if lane is None:
            return None
        queue = self._queues[lane]
        queue.discard(stage)
        if not queue:
            del self._queues[lane]
            self._open.pop(lane, None)
            self._passed.pop(lane, None)
            self._unblock(lane)
            self._count_bound(lane, -1)
            return lane
        return None

    def of(self, stage: StageKey) -> Lane | None:
        """The lane of a stage that waits."""
        return self._lanes.get(stage)

    def bound_to(self, host: str | None) -> bool:
        """Whether somebody waits who can run on this host alone."""
        return self._bound.get(host or "", 0) > 0

    def open(self) -> Iterable[Lane]:
        """The lanes that are not known to have no room."""
        return list(self._open)

    def first(self, lane: Lane) -> tuple[Any, StageKey] | None:
        """The rank and the key of the lane's first stage."""
        queue = self._queues.get(lane)
        if queue is None:
            return None
        stage = queue.first()
        return None if stage is None else (queue.first_key(), stage)

    def block(self, lane: Lane, until: tuple[str, ...]) -> None:
        """There is no room for the lane until one of the resources is given back."""
        if lane not in self._open:
            return
        del self._open[lane]
        self._reasons[lane] = until
        for name in until:
            self._blocked.setdefault(name, {})[lane] = None

    def freed(self, names: Iterable[str]) -> None:
        """These resources were given back, in part or in full."""
        for name in names:
            for lane in list(self._blocked.get(name, ())):
                self._unblock(lane)
                self._open[lane] = None

    def pass_by(self, names: Iterable[str]) -> Iterable[tuple[Lane, int]]:
        """Somebody else got something of these resources: the lanes that wait for them, and how often that was so."""
        for lane in dict.fromkeys(lane for name in names for lane in self._blocked.get(name, ())):
            self._passed[lane] = self._passed.get(lane, 0) + 1
            yield lane, self._passed[lane]

    def served(self, lane: Lane) -> None:
        """One of the lane has started."""
        self._passed.pop(lane, None)

    def _count_bound(self, lane: Lane, sign: int) -> None:
        if lane.home is not None:
            self._bound[lane.home] = self._bound.get(lane.home, 0) + sign

    def _unblock(self, lane: Lane) -> None:
        for name in self._reasons.pop(lane, ()):
            waiting = self._blocked[name]
            waiting.pop(lane, None)
            if not waiting:
                del self._blocked[name]
