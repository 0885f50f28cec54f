"""Latencies in alternation: rounds in which every contender has a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import BaselineTurn

__all__ = ["QUICK_SECONDS", "TURN_SECONDS", "WARM_SECONDS", "InterleavedTimes", "TimedEntry", "time_interleaved"]

WARM_SECONDS = 0.02
"""Untimed running at the start of a turn: caches and clock rates become the contender's own again."""

TURN_SECONDS = 2.0
"""After which a turn ends, so that slow networks get several turns rather than one long one."""

QUICK_SECONDS = 1.0
"""An untuned network that runs within this races; a slower one keeps the time of its single run."""

_PATIENCE = 10.0  # a turn may take this many times as long as a run of the contender's first turn promises ...
_LEAST_SECONDS = 60.0  # ... and at least this


class TimedEntry(Protocol):
    """Who can take turns; `turn` raises EngineError when it cannot go on."""

    name: str

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Take a turn within `seconds`; the times of its timed runs in milliseconds."""


class InterleavedTimes(NamedTuple):
    """Latencies in milliseconds by name, and why somebody dropped out."""

    latency_ms: dict[str, tuple[float, ...]]
    dropped: dict[str, str]


def time_interleaved(
    entrants: Sequence[TimedEntry], conditions: ValidationContext, clock: Callable[[], float]
) -> InterleavedTimes:
    """Let the entrants take turns in rounds; each round is begun by another, so that no place in it is anyone's.

    Whoever drops out loses the times it has, since the others went on under other conditions.  `clock` gives seconds.
    """
    times: dict[str, list[float]] = {entrant.name: [] for entrant in entrants}
    dropped: dict[str, str] = {}
    running, begun = list(entrants), clock()
    turn = BaselineTurn(conditions.runs, TURN_SECONDS, WARM_SECONDS)
    for number in range(conditions.rounds):
        if not running or (number >= conditions.min_rounds and clock() - begun >= conditions.race_seconds):
            break
        first = number % len(running)
        for entrant in running[first:] + running[:first]:
            slowest = max(times[entrant.name], default=0.0) / 1e3
            try:
                times[entrant.name] += entrant.turn(turn, max(_LEAST_SECONDS, _PATIENCE * (slowest + TURN_SECONDS)))
            except EngineError as error:
                dropped[entrant.name] = str(error)
                del times[entrant.name]
                running.remove(entrant)
    return InterleavedTimes({name: tuple(taken) for name, taken in times.items()}, dropped)
