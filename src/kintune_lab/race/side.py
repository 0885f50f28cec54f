"""One side of a race, as the conductor sees it, and the process behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from kintune.wire.worker_client import WorkerProcess
from kintune_lab.contest.orders import (
    CONTESTANT,
    ContestContext,
    Go,
    Halted,
    Order,
    Ours,
    PrepareContestant,
    Ready,
    Teach,
    Tell,
    Turned,
)

__all__ = ["CONTESTANT_MODULE", "Contestant", "Lesson", "Side"]

Lesson = Callable[[Ready], Teach]
"""From the network that is tuned to what is known beforehand."""

CONTESTANT_MODULE = "kintune_lab.contest.contestant"

_PREPARE_SECONDS = 3600.0
_TURN_SECONDS = 3.0 * 3600  # 64 candidates that all take as long as they may are built and run in 50 minutes
_TELL_SECONDS = 600.0


class Side(Protocol):
    """Who takes turns.  Each method raises EngineError when the side is gone."""

    name: str
    trials_expected: int | None

    def prepare(self) -> Ready:
        """Import and lower the model; nobody is charged for it."""

    def go(self) -> bool:
        """Take a turn, which ends with this call; True when there will be no more."""

    def tell(self) -> Turned:
        """What the last turn brought; nobody is charged for it."""

    def stop(self) -> None:
        """Stand still until `resume`."""

    def resume(self) -> None:
        """Move again."""


class Contestant:
    """A tuner in a process of its own."""

    def __init__(
        self,
        name: str,
        contest: ContestContext,
        log: Path,
        environment: Mapping[str, str],
        lesson: Lesson | None = None,
        module: str = CONTESTANT_MODULE,
    ) -> None:
        """Start `python -m` with `module`; `environment` is laid over ours, `lesson` says what it knows beforehand."""
        self.name = name
        self.trials_expected: int | None = None
        self.search_threads = 0
        self._contest = contest
        self._lesson = lesson
        self._process = WorkerProcess(name, module, log=log, environment=environment)

    def prepare(self) -> Ready:
        """See `Side`."""
        self._process.greet()
        self._process.begin(CONTESTANT, msgspec.msgpack.encode(self._contest))
        ready = msgspec.msgpack.decode(self._order(PrepareContestant(), _PREPARE_SECONDS), type=Ready)
        tuner = self._contest.tuner
        self.trials_expected = None if isinstance(tuner, Ours) else tuner.trials_per_subgraph * ready.tasks
        self.search_threads = ready.search_threads
        if self._lesson is not None:
            self._order(self._lesson(ready), _PREPARE_SECONDS)
        return ready

    def go(self) -> bool:
        """See `Side`."""
        return msgspec.msgpack.decode(self._order(Go(), _TURN_SECONDS), type=Halted).finished

    def tell(self) -> Turned:
        """See `Side`."""
        return msgspec.msgpack.decode(self._order(Tell(), _TELL_SECONDS), type=Turned)

    def stop(self) -> None:
        """See `Side`."""
        self._process.stop()

    def resume(self) -> None:
        """See `Side`."""
        self._process.resume()

    def close(self) -> None:
        """End the process and all its children."""
        self._process.close()

    def _order(self, order: Order, seconds: float) -> bytes:
        return self._process.order(msgspec.msgpack.encode(order), seconds)
