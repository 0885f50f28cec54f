"""Lets the sides of a race take turns, so that each has had as many seconds as the others at any time.

The side with the fewest seconds goes next; the others are stopped.  A side is charged from the order to go until it
says that its round is complete, on one clock.  The first side (stock) goes on until it ends by itself; the others may
spend as many seconds as it did, times their budget.  One whose budget is below 1 goes less often, so that it too is at
work as long as stock is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kintune.core.candidate import Sketch
from kintune.errors import EngineError
from kintune_lab.contest.orders import Ready
from kintune_lab.race.course import Course, RaceGround, Track, TurnTaken
from kintune_lab.race.side import Side

__all__ = ["Conductor", "Watch"]

Watch = Callable[[Course], None]
"""Shown the race so far after each turn."""


class Conductor:
    """Conducts one race.

    The first of `sides` is stock; `budgets` has for each of the others the share of stock's seconds that it may spend.
    `clock` gives seconds; `reference` times the reference kernel, in microseconds, while everybody stands still.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        budgets: Mapping[str, float],
        clock: Callable[[], float],
        reference: Callable[[], float],
    ) -> None:
        self._sides = list(sides)
        self._budgets = {**budgets, self._sides[0].name: 1.0}
        self._clock = clock
        self._reference = reference
        self._turns: dict[str, list[TurnTaken]] = {side.name: [] for side in sides}
        self._prepared_s: dict[str, float] = {}
        self._finished: set[str] = set()
        self._sketches: dict[str, Sketch] = {}
        self._order = 0

    def conduct(self, watch: Watch) -> Course:
        """Run the race to its end.  Raises EngineError when a side is gone, or lowered the network otherwise."""
        ground = self._prepare()
        began = self._clock()
        while (side := self._next()) is not None:
            self._turn(side, began)
            watch(self._course(ground))
        return self._course(ground)

    def _prepare(self) -> RaceGround:
        ready: dict[str, Ready] = {}
        for side in self._sides:
            began = self._clock()
            ready[side.name] = side.prepare()
            self._prepared_s[side.name] = self._clock() - began
            side.stop()
        first = ready[self._sides[0].name]
        for name, other in ready.items():
            if (other.target, other.subgraphs, other.modules) != (first.target, first.subgraphs, first.modules):
                raise EngineError(f"{name} has lowered the network otherwise than {self._sides[0].name}")
        return RaceGround(first.target, first.subgraphs, first.modules, first.tasks)

    def _next(self) -> Side | None:
        """Who goes next: of those who may, the one with the fewest seconds for its budget, the first of equals."""
        stock = self._sides[0].name
        total = self._spent(stock) if stock in self._finished else math.inf
        waiting = [
            side
            for side in self._sides
            if side.name not in self._finished
            and (side.name == stock or self._spent(side.name) < self._budgets[side.name] * total)
        ]
        return min(waiting, key=lambda s: self._spent(s.name) / min(1.0, self._budgets[s.name]), default=None)

    def _turn(self, side: Side, began: float) -> None:
        reference_us = self._reference()
        side.resume()
        start = self._clock()
        finished = side.go()
        seconds = self._clock() - start
        told = side.tell()
        side.stop()
        if finished:
            self._finished.add(side.name)
        self._sketches.update((sketch.digest, sketch) for sketch in told.sketches)
        turns = self._turns[side.name]
        turns.append(
            TurnTaken(
                side=side.name,
                number=len(turns),
                order=self._order,
                began_s=start - began,
                seconds=seconds,
                active_seconds=self._spent(side.name) + seconds,
                trials=told.trials,
                failures=told.failures,
                measured=told.measured,
                stages=told.seconds,
                programs=told.programs,
                reference_us=reference_us,
            )
        )
        self._order += 1

    def _spent(self, name: str) -> float:
        turns = self._turns[name]
        return turns[-1].active_seconds if turns else 0.0

    def _course(self, ground: RaceGround) -> Course:
        tracks = {
            name: Track(name, tuple(turns), self._prepared_s[name], name in self._finished)
            for name, turns in self._turns.items()
        }
        return Course(ground, tracks, self._sketches)
