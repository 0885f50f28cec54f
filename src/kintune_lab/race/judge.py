"""Times the programs of all sides again, alternately and under one protocol.

The tuners' own times are never compared: theirs are of different minutes, and the fastest of many is lucky.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune_lab.race.course import Course

__all__ = ["Judgement", "Laboratory", "entered", "judge", "running_order"]

Item = TypeVar("Item")


class Laboratory(Protocol):
    """Builds programs and times them."""

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        """Build all; `done` is told how many there are so far."""

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        """Check and time each once, in this order, against its workload's untuned program."""


class Judgement(msgspec.Struct, frozen=True):
    """What the judge says of a program: the median of each pass in microseconds, or why it does not count."""

    candidate: Candidate
    passes_us: tuple[float, ...]
    status: Status
    cause: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was built, was right, and ran, in every pass."""
        return self.status is Status.OK

    @property
    def median_us(self) -> float:
        """The median of the passes; infinite when it does not count."""
        return statistics.median(self.passes_us) if self.ok else math.inf


def entered(course: Course) -> dict[str, dict[str, list[Candidate]]]:
    """The programs that were ever an incumbent at a turn's end, by workload and side, in the order of their time.

    Every workload has its untuned program, as a side of its own without a name.
    """
    programs: dict[str, dict[str, list[Candidate]]] = {
        s.workload: {"": [Candidate.untuned(s.workload)]} for s in course.ground.subgraphs
    }
    for side, track in course.tracks.items():
        for turn in track.turns:
            for program in turn.programs:
                of_side = programs[program.candidate.workload].setdefault(side, [])
                if program.candidate not in of_side:
                    of_side.append(program.candidate)
    return programs


def running_order(programs: Mapping[str, Mapping[str, Sequence[Candidate]]], number: int) -> list[Candidate]:
    """The order of pass `number`: workload by workload, in each the sides in turn; every pass begins with others.

    The latest programs of the sides come first, so that those which decide stand closest together.
    """
    order: list[Candidate] = []
    for workload in _rotated(list(programs), number):
        sides = _rotated(list(programs[workload].values()), number)
        for row in itertools.zip_longest(*(reversed(side) for side in sides)):
            order += [candidate for candidate in row if candidate is not None]
    return list(dict.fromkeys(order))


def judge(
    course: Course, laboratory: Laboratory, passes: int, show: Callable[[str, float], None]
) -> dict[Candidate, Judgement]:
    """Build every program that was ever an incumbent, and time all of them `passes` times.

    `show` is told what is done and which share of the judging is done.
    """
    programs = entered(course)
    candidates = running_order(programs, 0)
    steps = len(candidates) * (passes + 1)
    built = laboratory.build(candidates, lambda count: show("building for the judge", count / steps))
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in candidates}
    failed: dict[Candidate, Outcome] = {c: b.failure for c, b in built.items() if b.failure is not None}
    for number in range(passes):
        standing = [c for c in running_order(programs, number) if c not in failed]
        before = len(candidates) * (number + 1)

        def shown(count: int, before: int = before) -> None:
            show("judging", (before + count) / steps)

        for candidate, outcome in laboratory.measure(standing, built, shown).items():
            if outcome.ok:
                times[candidate].append(outcome.median_us)
            else:
                failed[candidate] = outcome
    return {
        candidate: Judgement(candidate, tuple(times[candidate]), failed[candidate].status, failed[candidate].cause)
        if candidate in failed
        else Judgement(candidate, tuple(times[candidate]), Status.OK)
        for candidate in candidates
    }


def _rotated(items: list[Item], by: int) -> list[Item]:
    return items[by % len(items) :] + items[: by % len(items)] if items else []
