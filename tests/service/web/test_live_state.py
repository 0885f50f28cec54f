from __future__ import annotations

import pytest

from kintune.scheduler.resources import Placement
from kintune.service.orchestrator.events import EventTally, StageBegan, StageEnded, Standing, Standings
from kintune.service.web.live_state import LiveState

HOST, GPU = Placement("local", 1), Placement(None, 0, 0, "gpu", exclusive=True)


@pytest.fixture
def live_state() -> LiveState:
    return LiveState(lambda: 1000.0)


def ran(live_state: LiveState, stage: str, placement: Placement, begin: float, end: float | None) -> None:
    live_state.update(StageBegan("job", stage, stage, placement, begin))
    if end is not None:
        live_state.update(StageEnded("job", stage, end))


def test_a_resource_is_busy_while_anything_runs_there(live_state: LiveState) -> None:
    ran(live_state, "a", HOST, 900.0, 920.0)
    ran(live_state, "b", HOST, 910.0, 930.0)
    ran(live_state, "c", GPU, 980.0, None)
    assert live_state.use(100.0) == {"gpu": 0.2, "local": 0.3}


def test_what_ran_before_does_not_count(live_state: LiveState) -> None:
    ran(live_state, "a", HOST, 100.0, 950.0)
    ran(live_state, "b", GPU, 100.0, 800.0)
    assert live_state.use(100.0) == {"local": 0.5}


def test_what_ran_under_a_dead_orchestrator_runs_no_more(live_state: LiveState) -> None:
    ran(live_state, "a", HOST, 900.0, None)
    live_state.forget_what_runs()
    assert live_state.use(100.0) == {}


def test_what_a_device_measured_is_added_up_and_what_disturbed_it(live_state: LiveState) -> None:
    for begin, tally in ((900.0, EventTally(10, 1)), (950.0, EventTally(20, 0)), (100.0, EventTally(5, 5))):
        live_state.update(StageBegan("job", "profile", "profile", GPU, begin))
        live_state.update(StageEnded("job", "profile", begin + 10, tally))
    ran(live_state, "a", HOST, 900.0, 920.0)
    assert live_state.tallies(200.0) == {"gpu": EventTally(30, 1)}


def test_hosts_and_devices_stand_as_the_orchestrator_says_until_it_is_gone(live_state: LiveState) -> None:
    standing = Standing("board/cpu", "device", "pi5", "the connection to it was cut", 900.0)
    live_state.update(Standings((standing,)))
    assert live_state.standings == (standing,)
    live_state.forget_what_runs()
    assert live_state.standings == ()
