from __future__ import annotations

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import (
    JobAdded,
    JobEnded,
    JobMoved,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Device, Host, Placement
from kintune.workers.fleet.backlog import Backlog, Load
from kintune.workers.fleet.growth import Growth

TWO = Demand(cores=2)


def stage(id: str, demand: Demand = TWO, job: str = "j") -> Stage:
    return Stage(id, job, "build", demand, duration_key="build")


def start(id: str, host: str, job: str = "j") -> Start:
    return Start(id, job, 0, Placement(host, 2))


class TestBacklog:
    def test_what_waits_is_work_once_it_is_known_how_long_it_takes(self) -> None:
        backlog = Backlog()
        for event in (ResourceJoined(0.0, Host("h", 4, 100)), JobAdded(0.0, "j"), JobMoved(0.0, "j", "h")):
            backlog(event, [])
        backlog(StageReady(0.0, stage("a")), [start("a", "h")])
        backlog(StageReady(0.0, stage("b")), [])
        assert backlog.look() == Load(0.0, 0, 4, 2, frozenset({"h"}))
        backlog(StageDone(10.0, "j", "a", 0), [])
        assert backlog.look() == Load(20.0, 0, 4, 0, frozenset({"h"}))
        assert backlog.look().wait_s == 5.0
        backlog(StageReady(10.0, stage("p", Demand(device="gpu"))), [])  # that is no matter of hosts
        assert backlog.look().work_s == 20.0
        backlog(StageDropped(10.0, "j", "b"), [])
        assert backlog.look().work_s == 0.0

    def test_what_failed_waits_again_and_what_is_over_does_not(self) -> None:
        backlog = Backlog()
        backlog(ResourceJoined(0.0, Host("h", 2, 100)), [])
        backlog(StageReady(0.0, stage("a")), [start("a", "h")])
        backlog(StageDone(4.0, "j", "a", 0), [])
        backlog(StageReady(4.0, stage("b")), [start("b", "h")])
        backlog(StageFailed(5.0, "j", "b", 0, "lost"), [])
        assert backlog.look().work_s == 8.0
        backlog(JobEnded(6.0, "j"), [])
        assert backlog.look() == Load(0.0, 0, 2, 0, frozenset())

    def test_hosts_come_and_go_and_with_them_who_lives_there(self) -> None:
        backlog = Backlog()
        for event in (
            ResourceJoined(0.0, Host("h", 2, 100)),
            ResourceJoined(0.0, Device("d", "gpu")),
            JobAdded(0.0, "j"),
        ):
            backlog(event, [])
        assert backlog.look().unplaced == 1
        backlog(JobMoved(1.0, "j", "h"), [])
        assert backlog.look() == Load(0.0, 0, 2, 0, frozenset({"h"}))
        backlog(ResourceLost(2.0, "h", "cut"), [])
        assert backlog.look() == Load(0.0, 1, 0, 0, frozenset())
        assert backlog.look().wait_s == float("inf")
        backlog(ResourceBack(3.0, "h"), [])
        assert backlog.look().wait_s == 0.0
        backlog(ResourceLost(4.0, "h", "cut"), [])
        backlog(ResourceJoined(5.0, Host("h", 8, 100)), [])  # it is back with more cores
        assert backlog.look() == Load(0.0, 1, 8, 0, frozenset())


def load(work_s: float = 0.0, cores: int = 2, busy: int = 0, unplaced: int = 0) -> Load:
    return Load(work_s, unplaced, cores, busy, frozenset())


class TestGrowth:
    def test_a_queue_that_stays_long_gets_as_many_cores_as_it_takes(self) -> None:
        growth = Growth(after_s=60.0, most=100)
        long = load(work_s=600.0, busy=2)
        assert growth.step(0.0, long) is None
        assert growth.step(4.9, long) is None
        assert growth.step(5.0, long) == 12  # two are busy, and ten do the rest in a minute
        assert growth.step(6.0, long) is None
        assert growth.asked == 12

    def test_a_moment_is_no_queue(self) -> None:
        growth = Growth(60.0, 100)
        for now in (0.0, 8.0, 16.0):
            assert growth.step(now, load(work_s=600.0)) is None
            assert growth.step(now + 4.0, load()) is None

    def test_there_is_a_limit(self) -> None:
        growth = Growth(60.0, 8)
        growth.step(0.0, load(work_s=1e6))
        assert growth.step(5.0, load(work_s=1e6)) == 8

    def test_jobs_that_live_nowhere_are_a_queue_that_nobody_waits_for(self) -> None:
        growth = Growth(60.0, 8)
        assert growth.step(0.0, load(cores=0, unplaced=3)) == 3

    def test_what_has_nothing_to_do_for_long_is_let_go(self) -> None:
        growth = Growth(60.0, 100)
        growth.step(0.0, load(work_s=600.0))
        growth.step(5.0, load(work_s=600.0))
        assert growth.asked == 10
        quiet = load(cores=10, busy=3)
        assert growth.step(10.0, quiet) is None
        assert growth.step(69.0, quiet) is None
        assert growth.step(70.0, quiet) == 3
        assert growth.step(71.0, load(cores=3, busy=3)) is None

    def test_a_queue_that_is_neither_long_nor_short_changes_nothing(self) -> None:
        growth = Growth(60.0, 100)
        growth.step(0.0, load(work_s=600.0))
        growth.step(5.0, load(work_s=600.0))
        for now in range(10, 300, 10):
            assert growth.step(float(now), load(work_s=300.0, cores=10, busy=9)) is None
