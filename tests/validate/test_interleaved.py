from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.interleaved import time_interleaved


class Scripted:
    """An entrant whose turns take scripted times, and which writes down who ran."""

    def __init__(self, name: str, log: list[str], fails_at: int | None = None, unit_ms: float = 1.0) -> None:
        self.name = name
        self.limits_s: list[float] = []
        self._unit_ms = unit_ms
        self._log = log
        self._fails_at = fails_at
        self._turns = 0

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Each run takes as many units as turns were taken."""
        self.limits_s.append(seconds)
        if self._turns == self._fails_at:
            raise EngineError("killed by SIGSEGV")
        self._turns += 1
        self._log.append(self.name)
        return (self._unit_ms * self._turns,) * turn.runs


def ticking() -> Callable[[], float]:
    """A clock that advances by a second each time it is read."""
    seconds = iter(range(10**6))
    return lambda: float(next(seconds))


@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 4))
def test_everybody_has_as_many_turns_and_none_always_begins(processes: int, rounds: int, runs: int) -> None:
    log: list[str] = []
    names = [f"e{i}" for i in range(processes)]
    interleaved = time_interleaved(
        [Scripted(n, log) for n in names], ValidationContext(1, rounds=rounds, runs=runs), lambda: 0.0
    )
    assert interleaved.dropped == {}
    assert {name: len(times) for name, times in interleaved.latency_ms.items()} == dict.fromkeys(names, rounds * runs)
    began = [log[number * processes] for number in range(rounds)]
    assert max(map(began.count, names)) - min(map(began.count, names)) <= 1
    assert all(sorted(log[i : i + processes]) == names for i in range(0, len(log), processes))


def test_it_ends_when_its_time_is_spent_but_not_before_the_least_rounds() -> None:
    log: list[str] = []
    time_interleaved([Scripted("a", log)], ValidationContext(1, rounds=10, min_rounds=3, race_seconds=0), ticking())
    assert log == ["a"] * 3
    time_interleaved([Scripted("b", log)], ValidationContext(1, rounds=10, min_rounds=3, race_seconds=2.0), ticking())
    assert log[3:] == ["b"] * 4


def test_one_that_fails_is_dropped_and_the_others_go_on() -> None:
    log: list[str] = []
    interleaved = time_interleaved(
        [Scripted("a", log), Scripted("b", log, fails_at=1), Scripted("c", log)],
        ValidationContext(1, rounds=4, runs=2),
        lambda: 0.0,
    )
    assert interleaved.dropped == {"b": "killed by SIGSEGV"}
    assert {name: len(times) for name, times in interleaved.latency_ms.items()} == {"a": 8, "c": 8}
    assert interleaved.rounds_ms == {"a": (1.0, 2.0, 3.0, 4.0), "c": (1.0, 2.0, 3.0, 4.0)}


def test_it_ends_when_nobody_is_left() -> None:
    interleaved = time_interleaved([Scripted("a", [], fails_at=0)], ValidationContext(1), lambda: 0.0)
    assert interleaved == ({}, {"a": "killed by SIGSEGV"}, {})


def test_a_turn_may_take_ten_times_as_long_as_the_slowest_run_and_a_turn_and_a_minute_at_least() -> None:
    entrants = [Scripted("slow", [], unit_ms=10e3), Scripted("quick", [])]
    time_interleaved(entrants, ValidationContext(1, rounds=3, runs=2), lambda: 0.0)
    assert [each.limits_s for each in entrants] == [[60.0, 120.0, 220.0], [60.0] * 3]
