"""What happened to a job lately, kept so that an error can tell it."""

from __future__ import annotations

from collections import deque

import msgspec

from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event, StageReady

__all__ = ["Story"]


class Story:
    """The last `length` events and decisions about a job; they become lines, each with its time, when asked for."""

    __slots__ = ("_told",)

    def __init__(self, length: int) -> None:
        self._told: deque[tuple[float, Event | Decision]] = deque(maxlen=length)

    def tell(self, now: float, what: Event | Decision) -> None:
        """Add one event or decision."""
        self._told.append((now, what))

    def lines(self) -> tuple[str, ...]:
        """What is remembered, oldest first."""
        return tuple(f"{now:.3f} {_line(what)}" for now, what in self._told)


def _line(what: Event | Decision) -> str:
    name = type(what).__name__
    if isinstance(what, StageReady):
        return f"{name} stage={what.stage.id} kind={what.stage.kind}"
    facts = (
        f"{field}={value}"
        for field, value in msgspec.structs.asdict(what).items()
        if field not in ("now", "job", "story")
    )
    return " ".join((name, *facts))
