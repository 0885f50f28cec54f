"""A tuner under test that follows a script, and a clock that only the script advances."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.workload import Subgraph
from kintune_lab.tuners.messages import BestProgram, CandidateFailure, TunerReady, TurnReport

__all__ = ["PassingTime", "ScriptedTuner", "ScriptedTurn", "example_ready"]


class PassingTime:
    """A clock that advances only by `pass_by`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The seconds that have passed."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Advance by this many seconds."""
        self.now += seconds


class ScriptedTurn(msgspec.Struct, frozen=True):
    """The seconds of a turn, the best programs (workload, number of the program, microseconds), and the failures."""

    seconds: float
    found: tuple[tuple[str, int, float], ...] = ()
    trials: int = 8
    failures: tuple[CandidateFailure, ...] = ()


def example_ready() -> TunerReady:
    """A network of two subgraphs, `a` (once) and `b` (three times)."""
    subgraphs = (
        Subgraph("dense", "a", 1, 1e6, "dense", "dense-relu", True),
        Subgraph("pool", "b", 3, 1e3, "pool", "pool", False),
    )
    return TunerReady("{}", subgraphs, {"a": b"A", "b": b"B"}, tasks=2, search_threads=2)


class ScriptedTuner:
    """Takes the turns of `script`; ends with the last one if `ends`, otherwise takes turns of 10 s without a find.

    `events` is shared by the tuners of a race: one line for each call.
    """

    def __init__(
        self, name: str, script: Sequence[ScriptedTurn], time: PassingTime, events: list[str], *, ends: bool = True
    ) -> None:
        self.name = name
        self.trials_expected: int | None = sum(turn.trials for turn in script) if ends else None
        self.ready = example_ready()
        self.running = True
        self._script = list(script)
        self._time = time
        self._events = events
        self._ends = ends
        self._taken = 0

    def prepare(self) -> TunerReady:
        """See `kintune_lab.race.tuner_process.TunerUnderTest`."""
        self._events.append(f"{self.name} prepares")
        self._time.pass_by(100.0)
        return self.ready

    def run_turn(self) -> bool:
        """See `kintune_lab.race.tuner_process.TunerUnderTest`."""
        if not self.running:
            raise AssertionError(f"{self.name} was given a turn while it was stopped")
        self._events.append(f"{self.name} goes")
        self._time.pass_by(self._turn(self._taken).seconds)
        self._taken += 1
        return self._ends and self._taken >= len(self._script)

    def report(self) -> TurnReport:
        """See `kintune_lab.race.tuner_process.TunerUnderTest`."""
        self._time.pass_by(7.0)  # not charged
        turn = self._turn(self._taken - 1)
        programs = tuple(
            BestProgram(Candidate(w, "s", ((number,),)), time_us, "h") for w, number, time_us in turn.found
        )
        return TurnReport(turn.trials, turn.failures, {}, {"build": turn.seconds}, programs, ())

    def stop(self) -> None:
        """See `kintune_lab.race.tuner_process.TunerUnderTest`."""
        self._events.append(f"{self.name} stops")
        self.running = False

    def resume(self) -> None:
        """See `kintune_lab.race.tuner_process.TunerUnderTest`."""
        self._events.append(f"{self.name} resumes")
        self.running = True

    def _turn(self, number: int) -> ScriptedTurn:
        return self._script[number] if number < len(self._script) else ScriptedTurn(10.0)
