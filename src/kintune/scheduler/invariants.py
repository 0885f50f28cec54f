"""The invariants of the scheduler under every policy, checked from events and decisions alone.

Tests and simulations call `Auditor.observe` after every event.  The auditor keeps its own state, so that it also finds
mistakes in the scheduler's indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kintune.core.stage import Stage, StageKey
from kintune.errors import SchedulerError
from kintune.scheduler.events import (
    Cancel,
    Decision,
    Event,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobMoved,
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Device, Host, Placement

__all__ = ["Auditor", "InvariantError"]


class InvariantError(SchedulerError):
    """A decision of the scheduler breaks an invariant."""


@dataclass
class _Seen:
    """A live stage: `order` is its position in order of arrival, `placement` what it holds while it runs.

    `overtaken` counts the stages with the same demand that started while this one could have started.  It may reach
    twice `bound`, the largest bound that was computed at any of these starts.
    """

    stage: Stage
    order: int
    attempt: int = -1
    placement: Placement | None = None
    retry_at: float | None = None
    cancelled: bool = False
    overtaken: int = 0
    bound: float = 0.0


@dataclass
class Auditor:
    """Checks every decision against a state that is built from events and decisions alone.

    `overbooks` and `starvation_free` are those of the policy.  A policy that overbooks may book more than there is;
    all other invariants hold.  Under a starvation-free policy, the number of stages with the same demand that start
    before a waiting stage is bounded.
    """

    overbooks: bool = False
    starvation_free: bool = False
    _priorities: dict[str, float] = field(default_factory=dict)
    _homes: dict[str, str | None] = field(default_factory=dict)
    _live: dict[StageKey, _Seen] = field(default_factory=dict)
    _done: set[StageKey] = field(default_factory=set)
    _closed: set[str] = field(default_factory=set)
    _resources: dict[str, Host | Device] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _seen: int = 0

    def observe(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Take in one event and check the decisions that it led to.

        Raises:
            InvariantError: a decision breaks an invariant.
        """
        self._take(event)
        for decision in decisions:
            self._check(event.now, decision)
        if not self.overbooks:
            self._check_books()

    @property
    def running(self) -> list[tuple[Stage, int]]:
        """The running stages with their attempts."""
        return [(seen.stage, seen.attempt) for seen in self._live.values() if seen.placement is not None]

    @property
    def live(self) -> list[StageKey]:
        """The stages that are neither done, nor dropped, nor removed with their job."""
        return list(self._live)

    def _take(self, event: Event) -> None:
        match event:
            case PriorityChanged():
                self._priorities[event.job] = event.priority
            case JobAdded():
                self._priorities[event.job] = event.priority
                self._homes[event.job] = event.home
                self._closed.discard(event.job)
                self._done = {key for key in self._done if key[0] != event.job}
            case JobMoved():
                self._homes[event.job] = event.home
            case JobEnded() | JobCancelled():
                self._close(event.job)
            case StageReady(stage=stage):
                self._seen += 1
                if stage.job not in self._closed:
                    self._live[stage.key] = _Seen(stage, self._seen)
            case StageDone():
                self._end((event.job, event.stage), event.attempt)
                self._finish((event.job, event.stage))
            case StageDropped():
                self._finish((event.job, event.stage))
            case StageFailed():
                self._end((event.job, event.stage), event.attempt)
                if event.job in self._closed:
                    self._close(event.job)
            case RetryDue():
                seen = self._live.get((event.job, event.stage))
                if seen is not None and event.attempt == seen.attempt + 1:
                    seen.retry_at = None
            case ResourceJoined(resource=resource):
                self._resources[resource.id] = resource
                self._lost.discard(resource.id)
            case ResourceLost():
                self._lost.add(event.resource)
            case ResourceBack():
                self._lost.discard(event.resource)
            case _:
                pass

    def _end(self, key: StageKey, attempt: int) -> None:
        seen = self._live[key]
        _require(seen.placement is not None and seen.attempt == attempt, f"{key}#{attempt} ended but was not running")
        seen.placement = None
        seen.cancelled = False

    def _finish(self, key: StageKey) -> None:
        del self._live[key]
        self._done.add(key)

    def _close(self, job: str) -> None:
        self._closed.add(job)
        for key in [key for key, seen in self._live.items() if key[0] == job and seen.placement is None]:
            del self._live[key]

    def _check(self, now: float, decision: Decision) -> None:
        key = (decision.job, decision.stage)
        seen = self._live.get(key)
        match decision:
            case Start():
                _require(seen is not None, f"{key} started but is not live")
                assert seen is not None
                self._check_start(key, seen, decision)
                if self.starvation_free:
                    self._count_overtaken(key, seen.stage)
                seen.overtaken, seen.bound = 0, 0.0
                seen.placement, seen.attempt = decision.placement, decision.attempt
            case RetryAt():
                _require(seen is not None and seen.placement is None, f"{key} is retried but has not failed")
                assert seen is not None
                _require(decision.when > now, f"{key} is retried in the past")
                _require(
                    decision.attempt == seen.attempt + 1, f"{key}: attempt {decision.attempt} after {seen.attempt}"
                )
                seen.retry_at = decision.when
            case GiveUp():
                self._close(decision.job)
            case Cancel():
                running = seen is not None and seen.placement is not None and seen.attempt == decision.attempt
                _require(running, f"{key}#{decision.attempt} is cancelled but does not run")
                assert seen is not None
                _require(not seen.cancelled, f"{key} is cancelled twice")
                seen.cancelled = True

    def _check_start(self, key: StageKey, seen: _Seen, start: Start) -> None:
        _require(seen.placement is None, f"{key} runs already")
        _require(start.attempt > seen.attempt, f"{key}: attempt {start.attempt} after {seen.attempt}")
        _require(seen.retry_at is None, f"{key} started before its retry at {seen.retry_at}")
        for other in seen.stage.after:
            _require((key[0], other) in self._done, f"{key} started before {other}")
        for other_key, other_seen in self._live.items():
            overtaken = (
                other_key[0] == key[0]
                and other_seen.stage.kind == seen.stage.kind
                and other_seen.order < seen.order
                and other_seen.placement is None
            )
            _require(not overtaken, f"{key} overtook {other_key} of its kind")
            both = other_key[0] == key[0] and seen.stage.affinity == other_seen.stage.affinity is not None
            busy = both and other_key != key and other_seen.placement is not None
            _require(not busy, f"{key} started while its process is busy with {other_key}")
        self._check_placement(key, seen.stage, start.placement)

    def _count_overtaken(self, key: StageKey, started: Stage) -> None:
        """Count one more start for every stage without an affinity that could have started instead."""
        if started.affinity is not None:
            return
        passed = [
            (other, seen)
            for other, seen in self._live.items()
            if other != key and seen.stage.affinity is None and seen.stage.demand == started.demand
            if self._could_start(other, seen)
        ]
        priorities = sum(priority for job, priority in self._priorities.items() if job not in self._closed)
        for other, seen in passed:
            seen.overtaken += 1
            seen.bound = max(seen.bound, 8 + 4 * priorities / self._priorities[other[0]] + len(passed))
            _require(
                seen.overtaken <= 2 * seen.bound,
                f"{other} waits while {seen.overtaken} others that need the same have started",
            )

    def _could_start(self, key: StageKey, seen: _Seen) -> bool:
        if seen.placement is not None or seen.retry_at is not None:
            return False
        if any((key[0], other) not in self._done for other in seen.stage.after):
            return False
        return not any(
            other[0] == key[0]
            and one.stage.kind == seen.stage.kind
            and one.order < seen.order
            and one.placement is None
            for other, one in self._live.items()
        )

    def _check_placement(self, key: StageKey, stage: Stage, placement: Placement) -> None:
        demand = stage.demand
        _require(placement.cores >= demand.cores, f"{key} was given too few cores: {placement}")
        _require(placement.memory_mb >= demand.memory_mb, f"{key} was given too little memory: {placement}")
        _require(placement.exclusive == demand.exclusive or demand.device is None, f"{key} at {placement}")
        _require((placement.device is None) == (demand.device is None), f"{key} was given {placement}")
        home = self._homes.get(key[0])
        stayed = home is None or stage.affinity is None or placement.host in (None, home)
        _require(stayed, f"{key} started on {placement.host}, and its process lives on {home}")
        for id in (placement.host, placement.device):
            _require(id is None or id in self._resources, f"{key} started on {id}, which has not joined")
            _require(id not in self._lost, f"{key} started on {id}, which is lost")
        if placement.device is not None:
            device = self._resources[placement.device]
            assert isinstance(device, Device)
            _require(device.type == demand.device, f"{key} wants a {demand.device}, got {device}")
            _require(device.host not in self._lost, f"{key} started on {device.id}, whose host is lost")
            _require(device.host in (None, placement.host), f"{key}: {device.id} is not on {placement.host}")
            if device.on_host_cores and placement.exclusive and not self.overbooks:
                host = self._resources[device.host or ""]
                assert isinstance(host, Host)
                _require(placement.cores == host.cores, f"{key} has {device.id} alone but not all of its cores")

    def _check_books(self) -> None:
        cores: dict[str, int] = {}
        memory: dict[str, int] = {}
        users: dict[str, list[Placement]] = {}
        for seen in self._live.values():
            there = seen.placement
            if there is None:
                continue
            if there.host is not None:
                cores[there.host] = cores.get(there.host, 0) + there.cores
                memory[there.host] = memory.get(there.host, 0) + there.memory_mb
            if there.device is not None:
                users.setdefault(there.device, []).append(there)
        for id, used in cores.items():
            host = self._resources[id]
            assert isinstance(host, Host)
            _require(used <= host.cores, f"{used} of {host.cores} cores of {id} are booked")
            _require(memory[id] <= host.memory_mb, f"{memory[id]} of {host.memory_mb} MB of {id} are booked")
        for id, placements in users.items():
            alone = not any(there.exclusive for there in placements) or len(placements) == 1
            _require(alone, f"{id} is booked for one stage alone and {len(placements) - 1} more")
            device = self._resources[id]
            assert isinstance(device, Device)
            few = device.capacity is None or self.overbooks or len(placements) <= device.capacity
            _require(few, f"{len(placements)} stages are on {id}, which takes {device.capacity}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantError(otherwise)
