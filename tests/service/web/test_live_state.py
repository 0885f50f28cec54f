from __future__ import annotations

import pytest

from kintune.scheduler.resources import Placement
from kintune.service.orchestrator.events import EventTally, StageBegan, StageEnded, Standing, Standings
from kintune.service.web.live_state import LiveState

HOST, GPU = Placement("local", 1), Placement(None, 0, 0, "gpu", exclusive=True)


@pytest.fixture
def board() -> LiveState:
    return LiveState(lambda: 1000.0)


def ran(board: LiveState, stage: str, placement: Placement, begin: float, end: float | None) -> None:
    board.told(StageBegan("job", stage, stage, placement, begin))
    if end is not None:
        board.told(StageEnded("job", stage, end))


def test_a_resource_is_busy_while_anything_runs_there(board: LiveState) -> None:
    ran(board, "a", HOST, 900.0, 920.0)
    ran(board, "b", HOST, 910.0, 930.0)
    ran(board, "c", GPU, 980.0, None)
    assert board.use(100.0) == {"gpu": 0.2, "local": 0.3}


def test_what_ran_before_does_not_count(board: LiveState) -> None:
    ran(board, "a", HOST, 100.0, 950.0)
    ran(board, "b", GPU, 100.0, 800.0)
    assert board.use(100.0) == {"local": 0.5}


def test_what_ran_under_a_dead_orchestrator_runs_no_more(board: LiveState) -> None:
    ran(board, "a", HOST, 900.0, None)
    board.forget_what_runs()
    assert board.use(100.0) == {}


def test_what_a_device_measured_is_added_up_and_what_disturbed_it(board: LiveState) -> None:
    for begin, tally in ((900.0, EventTally(10, 1)), (950.0, EventTally(20, 0)), (100.0, EventTally(5, 5))):
        board.told(StageBegan("job", "profile", "profile", GPU, begin))
        board.told(StageEnded("job", "profile", begin + 10, tally))
    ran(board, "a", HOST, 900.0, 920.0)
    assert board.tallies(200.0) == {"gpu": EventTally(30, 1)}


def test_hosts_and_devices_stand_as_the_orchestrator_says_until_it_is_gone(board: LiveState) -> None:
    standing = Standing("board/cpu", "device", "pi5", "the connection to it was cut", 900.0)
    board.told(Standings((standing,)))
    assert board.standings == (standing,)
    board.forget_what_runs()
    assert board.standings == ()
