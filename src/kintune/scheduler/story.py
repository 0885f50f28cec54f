"""What happened to a job lately, kept so that an error can tell it."""

from __future__ import annotations

from collections import deque

import msgspec

from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event, StageReady

__all__ = ["Story"]


class Story:
    """The last `length` events and decisions about a job, as lines that start with the time."""

    def __init__(self, length: int) -> None:
        self._lines: deque[str] = deque(maxlen=length)

    def tell(self, now: float, what: Event | Decision) -> None:
        """Add one event or decision."""
        self._lines.append(f"{now:.3f} {_line(what)}")

    def lines(self) -> tuple[str, ...]:
        """What is remembered, oldest first."""
        return tuple(self._lines)


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
