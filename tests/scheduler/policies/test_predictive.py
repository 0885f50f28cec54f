from __future__ import annotations

import pytest

from kintune.scheduler.decisions import Start
from kintune.scheduler.events import (
    Event,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageReady,
)
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.machine import Machine
from kintune.scheduler.policies import Predictive
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.stage import Demand, Stage

GPU = Demand(device="gpu", exclusive=True)
CORE = Demand(cores=1)


class Scene:
    """A machine with a witness; `running` is where each stage that runs is."""

    def __init__(self, *resources: Host | Device) -> None:
        self.machine = Machine(Predictive())
        self.auditor = Auditor()
        self.running: dict[str, Start] = {}
        self.now = 0.0
        self.cores = any(isinstance(resource, Host) for resource in resources)
        for resource in resources:
            self.tell(ResourceJoined(0.0, resource))

    def tell(self, *events: Event) -> list[str]:
        """What was started, as job/stage."""
        started: list[str] = []
        for event in events:
            decisions = self.machine.handle(event)
            self.auditor.observe(event, decisions)
            for decision in decisions:
                if isinstance(decision, Start):
                    started.append(f"{decision.job}/{decision.stage}")
                    self.running[started[-1]] = decision
        return started

    def warm_up(self) -> Scene:
        """So that it is known what a stage takes: a second."""
        self.tell(JobAdded(self.now, "warm"))
        self.tell(StageReady(self.now, Stage("w", "warm", "any", CORE if self.cores else GPU, None, "warm")))
        self.done("warm/w")
        self.tell(JobEnded(self.now, "warm"))
        return self

    def add(self, *jobs: str, ahead: dict[str, int] | None = None, **more: float) -> None:
        for job in jobs:
            self.tell(JobAdded(self.now, job, **more))
            if ahead is not None:
                self.tell(JobExpects(self.now, job, {f"{job}/{kind}": count for kind, count in ahead.items()}))

    def ask(self, job: str, id: str, demand: Demand = GPU, kind: str = "profile", own: bool = False) -> list[str]:
        key = f"{job}/{kind}"
        return self.tell(StageReady(self.now, Stage(id, job, kind, demand, job if own else None, key)))

    def done(self, name: str, seconds: float = 1.0) -> list[str]:
        self.now += seconds
        start = self.running.pop(name)
        return self.tell(StageDone(self.now, start.job, start.stage, start.attempt))


@pytest.fixture
def one() -> Scene:
    return Scene(Device("g", "gpu")).warm_up()


def test_who_has_more_to_do_goes_first(one: Scene) -> None:
    one.add("idle", "x", "y", "z")
    one.add("short", ahead={"profile": 2})
    one.add("long", ahead={"profile": 30})
    for job in ("short", "long", "idle"):
        assert one.ask(job, "0") == [f"{job}/0"]
        if job != "idle":
            one.done(f"{job}/0")
    assert one.ask("short", "1") == []
    assert one.ask("long", "1") == []
    assert one.done("idle/0") == ["long/1"]


def test_a_deadline_that_is_near_goes_first(one: Scene) -> None:
    one.add("idle", ahead={"profile": 1})
    one.add("long", ahead={"profile": 3})
    one.add("urgent", ahead={"profile": 1}, deadline=2.5)
    one.ask("idle", "0")
    one.ask("long", "0")
    one.ask("urgent", "0")
    assert one.done("idle/0") == ["urgent/0"]


def test_a_heavier_job_of_the_same_length_goes_first_and_may_become_it(one: Scene) -> None:
    one.add("idle", ahead={"profile": 1})
    one.add("a", "b", ahead={"profile": 4})
    one.ask("idle", "0")
    one.ask("a", "0")
    one.ask("b", "0")
    one.tell(PriorityChanged(one.now, "b", 5.0))
    assert one.done("idle/0") == ["b/0"]


def test_one_that_tells_nothing_is_served_as_well(one: Scene) -> None:
    one.add("a", ahead={"profile": 50})
    one.add("silent")
    one.ask("a", "0")
    one.ask("silent", "0")
    served = []
    for n in range(1, 40):
        one.ask("a", str(n))
        (running,) = one.running
        served += one.done(running)
    assert "silent/0" in served


class TestKeeping:
    """What a critical job has used is kept for it, where there is enough for others."""

    @pytest.fixture
    def three(self) -> Scene:
        scene = Scene(Host("h", 8, 0), *(Device(f"g{n}", "gpu") for n in range(3))).warm_up()
        scene.add("critical", ahead={"build": 90, "profile": 90})
        scene.add("other", "third", ahead={"profile": 6})
        scene.ask("critical", "p0")
        scene.ask("other", "p0")
        scene.ask("third", "p0")
        assert len(scene.running) == 3
        for job in ("other", "third"):
            scene.tell(StageReady(scene.now, Stage("p1", job, "later", GPU, None, f"{job}/profile")))
        return scene

    def test_a_device_waits_for_a_critical_job(self, three: Scene) -> None:
        assert three.done("critical/p0") == []
        assert three.ask("critical", "b0", CORE, "build") == ["critical/b0"]
        three.done("critical/b0")
        assert three.ask("critical", "p1") == ["critical/p1"]
        assert three.running["critical/p1"].placement.device == "g0"

    def test_others_have_the_rest(self, three: Scene) -> None:
        three.done("critical/p0")
        assert three.done("other/p0") == ["other/p1"]
        assert three.running["other/p1"].placement.device == "g1"

    @pytest.mark.parametrize("end", ["cancelled", "over", "lost"])
    def test_what_was_kept_is_free_once_it_is_wanted_no_more(self, three: Scene, end: str) -> None:
        three.done("critical/p0")
        if end == "cancelled":
            assert three.tell(JobCancelled(three.now, "critical", "unwanted")) == ["other/p1"]
        elif end == "over":
            assert three.tell(JobEnded(three.now, "critical")) == ["other/p1"]
        else:
            three.tell(ResourceLost(three.now, "g0", "no answer"))
            assert three.tell(ResourceBack(three.now, "g0")) == ["other/p1"]

    def test_the_only_device_is_never_kept(self, one: Scene) -> None:
        one.add("critical", ahead={"build": 90, "profile": 90})
        one.add("other", ahead={"profile": 1})
        one.ask("critical", "p0")
        one.ask("other", "p0")
        assert one.done("critical/p0") == ["other/p0"]

    def test_a_job_that_holds_nobody_up_keeps_nothing(self, three: Scene) -> None:
        three.tell(JobExpects(three.now, "critical", {"critical/profile": 1}))
        assert three.done("critical/p0") == ["other/p1"]

    def test_cores_are_kept_where_its_process_lives_unless_somebody_is_bound_there(self) -> None:
        scene = Scene(Host("small", 1, 0), Host("large", 7, 0)).warm_up()
        scene.add("filler", ahead={})
        scene.ask("filler", "f", Demand(cores=7), "fill")
        scene.add("critical", ahead={"own": 50, "away": 50})
        scene.ask("critical", "o0", CORE, "own", own=True)
        assert scene.running["critical/o0"].placement.host == "small"
        scene.done("critical/o0")
        scene.add("other", ahead={"own": 3})
        assert scene.ask("other", "x", CORE, "own", own=True) == []
        assert scene.ask("critical", "o1", CORE, "own", own=True) == ["critical/o1"]
