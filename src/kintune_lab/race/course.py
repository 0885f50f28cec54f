"""What happened in a race: turns, and what each brought."""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Sketch
from kintune.core.workload import Subgraph
from kintune_lab.contest.orders import ContestProgram, Failure

__all__ = ["Course", "RaceGround", "Track", "TurnTaken"]


class RaceGround(msgspec.Struct, frozen=True):
    """The network that all tune: canonical target (JSON), subgraphs, their serialised programs by workload."""

    target: str
    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    tasks: int


class TurnTaken(msgspec.Struct, frozen=True):
    """One turn of one side.

    `seconds` is what it is charged, `active_seconds` what it was charged until its end; `began_s` is when, in seconds
    of the race; `reference_us` is the reference kernel's time just before.  `stages` are seconds by stage on the
    side's own clock.  `programs` are the incumbents that changed.
    """

    side: str
    number: int
    order: int
    began_s: float
    seconds: float
    active_seconds: float
    trials: int
    failures: tuple[Failure, ...]
    measured: dict[str, int]
    stages: dict[str, float]
    programs: tuple[ContestProgram, ...]
    reference_us: float


class Track(msgspec.Struct, frozen=True):
    """All turns of one side; `finished` when it ended by itself rather than for lack of time."""

    side: str
    turns: tuple[TurnTaken, ...]
    prepare_seconds: float
    finished: bool

    @property
    def active_seconds(self) -> float:
        """What it is charged in all."""
        return self.turns[-1].active_seconds if self.turns else 0.0

    @property
    def trials(self) -> int:
        """How many candidates it measured."""
        return sum(turn.trials for turn in self.turns)


class Course(msgspec.Struct, frozen=True):
    """A race that is over: the ground, the tracks by side (stock's first), and the sketches of all programs."""

    ground: RaceGround
    tracks: dict[str, Track]
    sketches: dict[str, Sketch]
