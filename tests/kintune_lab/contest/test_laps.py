from __future__ import annotations

import pytest

from kintune_lab.contest.laps import PAUSED, Laps
from tests.support.scripted_side import PassingTime


def test_seconds_go_to_the_innermost_stage() -> None:
    time = PassingTime()
    laps = Laps(time)
    time.pass_by(100)
    with laps.stage("select"):
        time.pass_by(1)
        with laps.stage("build"):
            time.pass_by(2)
        time.pass_by(3)
        with laps.stage(PAUSED):
            time.pass_by(50)
    assert laps.take() == {"select": 4, "build": 2}
    assert laps.take() == {}


def test_what_runs_when_they_are_taken_goes_on() -> None:
    time = PassingTime()
    laps = Laps(time)
    with laps.stage("select"):
        time.pass_by(1)
        assert laps.take() == {"select": 1}
        time.pass_by(2)
    assert laps.take() == {"select": 2}


def test_an_exception_ends_its_stage() -> None:
    time = PassingTime()
    laps = Laps(time)

    def fail() -> None:
        with laps.stage("build"):
            time.pass_by(1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    time.pass_by(5)
    assert laps.take() == {"build": 1}
