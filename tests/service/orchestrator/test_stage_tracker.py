from __future__ import annotations

from kintune.core.stage import Demand, Stage, StageKey
from kintune.scheduler.events import (
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Device, Host, Placement
from kintune.service.orchestrator.events import EventTally, News, StageBegan, StageEnded, Standing, Standings
from kintune.service.orchestrator.stage_tracker import StageTracker

GPU = Placement(None, 0, 0, "gpu", exclusive=True)
STAGE = Stage("profile-1", "run", "profile", Demand(device="gpu"))


def watched(tallies: dict[StageKey, EventTally]) -> tuple[StageTracker, list[News]]:
    told: list[News] = []
    return StageTracker(
        lambda run: f"job of {run}", lambda: 5.0, told.append, lambda key: tallies.pop(key, EventTally())
    ), told


def test_a_stage_is_told_when_it_begins_and_when_it_ends() -> None:
    watch, told = watched({("run", "profile-1"): EventTally(4, 1)})
    watch(StageReady(0.0, STAGE), [Start("profile-1", "run", 1, GPU)])
    watch(StageDone(0.0, "run", "profile-1", 1), [])
    assert told == [
        StageBegan("job of run", "profile-1", "profile", GPU, 5.0),
        StageEnded("job of run", "profile-1", 5.0, EventTally(4, 1)),
    ]


def test_a_stage_that_fails_has_ended_too_and_one_that_never_began_has_not() -> None:
    watch, told = watched({})
    watch(StageFailed(0.0, "run", "other-1", 1, "cause"), [])
    assert told == []
    watch(StageReady(0.0, STAGE), [Start("profile-1", "run", 1, GPU)])
    watch(StageFailed(0.0, "run", "profile-1", 1, "cause"), [])
    assert told[1:] == [StageEnded("job of run", "profile-1", 5.0)]


def test_hosts_and_devices_are_told_of_as_they_come_and_go() -> None:
    watch, told = watched({})
    host, gpu = Host("front", 4, 100), Device("board/gpu", "pi5")
    watch(ResourceJoined(0.0, host), [])
    watch(ResourceJoined(0.0, gpu), [])
    watch(ResourceLost(1.0, "board/gpu", "the connection to it was cut"), [])
    watch(ResourceBack(2.0, "board/gpu"), [])
    here, there = Standing("front", "host", "4 cores", "", 5.0), Standing("board/gpu", "device", "pi5", "", 5.0)
    lost = Standing("board/gpu", "device", "pi5", "the connection to it was cut", 5.0)
    assert told == [Standings((here,)), Standings((here, there)), Standings((here, lost)), Standings((here, there))]


def test_who_waits_for_a_device_is_told_when_resources_change() -> None:
    changes: list[str] = []
    watch = StageTracker(str, lambda: 5.0, lambda news: None, lambda key: EventTally(), lambda: changes.append("now"))
    watch(ResourceJoined(0.0, Device("board/gpu", "pi5")), [])
    watch(ResourceLost(1.0, "board/gpu", "the connection to it was cut"), [])
    watch(ResourceBack(2.0, "board/gpu"), [])
    watch(StageDone(3.0, "run", "profile-1", 1), [])
    assert changes == ["now"] * 3


def test_a_stage_that_is_ready_and_does_not_begin_waits() -> None:
    waits: list[str] = []
    watch = StageTracker(str, lambda: 5.0, lambda news: None, lambda key: EventTally(), waits=waits.append)
    watch(StageReady(0.0, STAGE), [Start("profile-1", "run", 1, GPU)])
    assert waits == []
    watch(StageReady(0.0, STAGE), [Start("profile-2", "other", 1, GPU)])
    assert waits == ["run"]
