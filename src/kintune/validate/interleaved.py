"""Interleaved timing: rounds in which every process has a turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import BaselineTurn

__all__ = ["QUICK_SECONDS", "TURN_SECONDS", "WARM_SECONDS", "InterleavedTimes", "TimedEntry", "time_interleaved"]

WARM_SECONDS = 0.02
"""Untimed running at the start of a turn, after which caches and clock rates are those of this process."""

TURN_SECONDS = 2.0
"""The length after which a turn ends, so that slow networks get several turns instead of a long one."""

QUICK_SECONDS = 1.0
"""An untuned network that runs within this is timed in turns; a slower one keeps the time of its single run."""

_PATIENCE = 10.0  # a turn may take this many times as long as the slowest run so far suggests ...
_LEAST_SECONDS = 60.0  # ... and at least this


class TimedEntry(Protocol):
    """A process that takes turns."""

    name: str

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Takes a turn within `seconds`, and returns the times of its timed runs in milliseconds.

        Raises:
            EngineError: it cannot go on.
        """


class InterleavedTimes(NamedTuple):
    """Latencies in milliseconds by name, and the reasons of those that dropped out.

    `latency_ms` has one entry a run; `rounds_ms` has one a round, the median of its runs: what `paired_ratio` takes.
    """

    latency_ms: dict[str, tuple[float, ...]]
    dropped: dict[str, str]
    rounds_ms: dict[str, tuple[float, ...]]

    def followed_by(self, further: InterleavedTimes) -> InterleavedTimes:
        """These times with `further` ones of some of the names appended; `further.dropped` must be empty."""

        def joined(
            these: dict[str, tuple[float, ...]], others: dict[str, tuple[float, ...]]
        ) -> dict[str, tuple[float, ...]]:
            return {name: (*times, *others.get(name, ())) for name, times in these.items()}

        return InterleavedTimes(
            joined(self.latency_ms, further.latency_ms), self.dropped, joined(self.rounds_ms, further.rounds_ms)
        )


def time_interleaved(
    processes: Sequence[TimedEntry], conditions: ValidationContext, clock: Callable[[], float]
) -> InterleavedTimes:
    """Lets the processes take turns in rounds; each round begins with another one, so that no order favours any.

    A process that drops out loses its times, since the others went on under other conditions.  `clock` tells seconds.
    """
    times: dict[str, list[float]] = {process.name: [] for process in processes}
    rounds: dict[str, list[float]] = {process.name: [] for process in processes}
    dropped: dict[str, str] = {}
    running, begun = list(processes), clock()
    turn = BaselineTurn(conditions.runs, TURN_SECONDS, WARM_SECONDS)
    for number in range(conditions.rounds):
        if not running or (number >= conditions.min_rounds and clock() - begun >= conditions.race_seconds):
            break
        first = number % len(running)
        for process in running[first:] + running[:first]:
            slowest = max(times[process.name], default=0.0) / 1e3
            try:
                taken = process.turn(turn, max(_LEAST_SECONDS, _PATIENCE * (slowest + TURN_SECONDS)))
            except EngineError as error:
                dropped[process.name] = str(error)
                del times[process.name], rounds[process.name]
                running.remove(process)
                continue
            times[process.name] += taken
            rounds[process.name].append(statistics.median(taken))
    return InterleavedTimes(
        {name: tuple(taken) for name, taken in times.items()},
        dropped,
        {name: tuple(medians) for name, medians in rounds.items()},
    )
