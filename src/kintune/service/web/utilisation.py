"""How busy each host and device was over a day: seconds in which at least one stage ran there, by spans of time."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["SPANS", "SPAN_S", "Utilisation"]

SPAN_S = 900.0
"""Seconds of one span."""

SPANS = 96
"""Spans that are kept: a day."""


class _Busy(NamedTuple):
    """Stages that run on a resource now, and since when nothing has changed there."""

    running: int
    since: float


class Utilisation:
    """Adds up busy seconds as stages begin and end, so that a day costs no more than its spans.

    It knows nothing of the time before it was made.

    Times are seconds since 1970.
    """

    def __init__(self) -> None:
        self._busy: dict[str, _Busy] = {}
        self._spans: dict[str, deque[tuple[int, float]]] = {}

    def began(self, resource: str, at: float) -> None:
        """A stage has begun there."""
        self._change(resource, at, 1)

    def ended(self, resource: str, at: float) -> None:
        """A stage has ended there."""
        self._change(resource, at, -1)

    def stopped(self, at: float) -> None:
        """Nothing runs any more, anywhere."""
        for resource, busy in list(self._busy.items()):
            self._change(resource, at, -busy.running)

    def day(self, now: float) -> dict[str, list[float]]:
        """The busy share (0 to 1) of each of the last `SPANS` spans, by resource, the latest last.

        The latest span counts for as much of it as has passed.
        """
        last = int(now // SPAN_S)
        found = {}
        for resource in sorted(self._spans):
            self._change(resource, now, 0)
            seconds = dict(self._spans[resource])
            passed = max(1.0, now - last * SPAN_S)
            found[resource] = [
                min(1.0, seconds.get(number, 0.0) / (passed if number == last else SPAN_S))
                for number in range(last - SPANS + 1, last + 1)
            ]
        return found

    def _change(self, resource: str, at: float, by: int) -> None:
        before = self._busy.get(resource, _Busy(0, at))
        if before.running > 0:
            self._add(resource, before.since, at)
        self._spans.setdefault(resource, deque(maxlen=SPANS))
        self._busy[resource] = _Busy(max(0, before.running + by), max(at, before.since))

    def _add(self, resource: str, begin: float, end: float) -> None:
        spans = self._spans.setdefault(resource, deque(maxlen=SPANS))
        begin = max(begin, end - SPANS * SPAN_S)
        while begin < end:
            number = int(begin // SPAN_S)
            until = min(end, (number + 1) * SPAN_S)
            if spans and spans[-1][0] == number:
                spans[-1] = (number, spans[-1][1] + until - begin)
            else:
                spans.append((number, until - begin))
            begin = until
