"""Hands events to the scheduler, and its decisions to the drivers of the jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kintune.scheduler.events import Cancel, Decision, Event, GiveUp, RetryAt, Start
from kintune.scheduler.scheduler import Scheduler
from kintune.workers.engine.job_driver import JobDriver

__all__ = ["Dispatch", "Observe"]

Observe: TypeAlias = Callable[[Event, Sequence[Decision]], None]


class Dispatch:
    """Handles one event at a time: events that its decisions cause wait until all of these are carried out."""

    def __init__(self, machine: Scheduler, observe: Observe, drivers: Mapping[str, JobDriver]) -> None:
        """`observe` gets every event with the decisions it led to; `drivers` has those of the present jobs, by id."""
        self._machine = machine
        self._observe = observe
        self._drivers = drivers
        self._events: deque[Event] = deque()
        self._afterwards: deque[Callable[[], None]] = deque()
        self._telling = False

    def tell(self, event: Event) -> None:
        """Hand an event to the scheduler."""
        self._events.append(event)
        self._go_on()

    def afterwards(self, act: Callable[[], None]) -> None:
        """Call `act` once all decisions are carried out, which may be at once."""
        self._afterwards.append(act)
        self._go_on()

    def _go_on(self) -> None:
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                event = self._events.popleft()
                decisions = self._machine.handle(event)
                self._observe(event, decisions)
                for decision in decisions:
                    self._carry_out(decision)
        finally:
            self._telling = False
        while self._afterwards:
            self._afterwards.popleft()()

    def _carry_out(self, decision: Decision) -> None:
        driver = self._drivers.get(decision.job)
        if driver is None:
            return  # the job is gone
        match decision:
            case Start():
                driver.start(decision)
            case RetryAt():
                driver.retry_at(decision)
            case GiveUp():
                driver.give_up(decision)
            case Cancel():
                driver.cancel(decision)
