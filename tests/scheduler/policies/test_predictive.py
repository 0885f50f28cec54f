from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
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
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import Predictive
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import Scheduler

GPU = Demand(device="gpu", exclusive=True)
CORE = Demand(cores=1)


class Scene:
    """A scheduler with an auditor; `running` has the placement of each running stage."""

    def __init__(self, *resources: Host | Device) -> None:
        self.scheduler = Scheduler(Predictive())
        self.auditor = Auditor()
        self.running: dict[str, Start] = {}
        self.now = 0.0
        self.cores = any(isinstance(resource, Host) for resource in resources)
        for resource in resources:
            self.tell(ResourceJoined(0.0, resource))

    def tell(self, *events: Event) -> list[str]:
        """The stages that were started, as job/stage."""
        started: list[str] = []
        for event in events:
            decisions = self.scheduler.handle(event)
            self.auditor.observe(event, decisions)
            for decision in decisions:
                if isinstance(decision, Start):
                    started.append(f"{decision.job}/{decision.stage}")
                    self.running[started[-1]] = decision
        return started

    def warm_up(self) -> Scene:
        """Run a stage of one second, so that its duration is known."""
        self.tell(JobAdded(self.now, "warm"))
        self.tell(StageReady(self.now, Stage("w", "warm", "any", CORE if self.cores else GPU, None, "warm")))
        self.done("warm/w")
        self.tell(JobEnded(self.now, "warm"))
        return self

    def add(
        self, *jobs: str, ahead: dict[str, int] | None = None, lasts: dict[str, float] | None = None, **more: float
    ) -> None:
        for job in jobs:
            self.tell(JobAdded(self.now, job, **more))
            if ahead is not None:
                counts = {f"{job}/{kind}": count for kind, count in ahead.items()}
                seconds = {f"{job}/{kind}": each for kind, each in (lasts or {}).items()}
                self.tell(JobExpects(self.now, job, counts, seconds))

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


def test_of_critical_jobs_the_one_with_the_most_ahead_goes_first(one: Scene) -> None:
    one.add("busy", ahead={"profile": 1})
    one.ask("busy", "b")
    one.add("long", ahead={"profile": 1, "elsewhere": 5})  # more, one after the other, than the device has to do
    one.add("longer", ahead={"profile": 1, "elsewhere": 9})
    assert one.ask("long", "l") + one.ask("longer", "l") == []
    assert one.done("busy/b") == ["longer/l"]


def test_who_says_that_something_long_comes_at_its_end_goes_first(one: Scene) -> None:
    one.add("busy", ahead={"profile": 1})
    one.ask("busy", "b")
    one.add("more", ahead={"profile": 9})
    one.add("long", ahead={"profile": 1, "prove": 1}, lasts={"prove": 100.0})
    assert one.ask("more", "m") + one.ask("long", "l") == []
    assert one.done("busy/b") == ["long/l"]


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
    """The cores of a critical job's process are kept for it, up to a share of all cores."""

    @pytest.fixture
    def scene(self) -> Scene:
        """The critical job's process is on the small host and has finished a stage; the large host is full."""
        scene = Scene(Host("small", 1, 0), Host("large", 7, 0), Device("g0", "gpu")).warm_up()
        scene.add("filler", ahead={})
        scene.ask("filler", "f", Demand(cores=7), "fill")
        scene.add("critical", ahead={"own": 50, "away": 50})
        scene.ask("critical", "o0", CORE, "own", own=True)
        assert scene.running["critical/o0"].placement.host == "small"
        scene.add("other", ahead={"own": 3})
        return scene

    def test_a_core_waits_for_a_critical_job(self, scene: Scene) -> None:
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == []
        assert scene.ask("critical", "o1", CORE, "own", own=True) == ["critical/o1"]

    @pytest.mark.parametrize("end", ["cancelled", "over", "lost", "failed"])
    def test_what_was_kept_is_free_once_it_is_wanted_no_more(self, scene: Scene, end: str) -> None:
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == []
        reservations = scene.scheduler._table.reservations
        assert reservations.kept == 1
        if end == "cancelled":
            assert scene.tell(JobCancelled(scene.now, "critical", "unwanted")) == ["other/x"]
        elif end == "over":
            assert scene.tell(JobEnded(scene.now, "critical")) == ["other/x"]
        elif end == "lost":
            scene.tell(ResourceLost(scene.now, "small", "no answer"))
            assert scene.tell(ResourceBack(scene.now, "small")) == ["other/x"]
        else:  # it is tried again later, and who knows how long that takes
            assert scene.ask("critical", "a0", GPU, "away") == ["critical/a0"]
            start = scene.running.pop("critical/a0")
            assert scene.tell(StageFailed(scene.now, "critical", "a0", start.attempt, "it broke")) == ["other/x"]
        assert reservations.kept == 0

    def test_what_is_kept_is_a_quarter_of_all_cores_at_most(self) -> None:
        scene = Scene(Host("small", 1, 0), Host("large", 11, 0), Device("g", "gpu")).warm_up()
        scene.add("filler", ahead={})
        scene.ask("filler", "f", Demand(cores=11), "fill")
        for number in range(5):
            job = f"critical{number}"
            scene.add(job, ahead={"own": 50, "away": 50})
            scene.ask(job, "o0", CORE, "own", own=True)
            if number == 0:
                scene.done("filler/f")
        for number in range(5):
            scene.done(f"critical{number}/o0")
            booked = 12 - sum(scene.scheduler._pool._hosts[id].free_cores for id in ("small", "large"))
            assert booked == 4 - number + min(number + 1, 3)  # of twelve cores

    def test_who_waits_for_more_than_is_kept_for_it_gives_that_up(self, scene: Scene) -> None:
        """Else jobs that keep cores could wait for each other for ever."""
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == []
        assert scene.ask("critical", "big", Demand(cores=7), "large") == ["other/x"]

    def test_it_does_so_once_that_may_start(self, scene: Scene) -> None:
        assert scene.ask("critical", "a0", GPU, "away") == ["critical/a0"]
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == []
        large = Stage("big", "critical", "large", Demand(cores=7), None, "critical/large", after=("a0",))
        assert scene.tell(StageReady(scene.now, large)) == []
        assert scene.done("critical/a0") == ["other/x"]

    def test_no_device_is_kept(self, scene: Scene) -> None:
        """An idle device that is kept gained nothing on mixes of jobs."""
        scene.ask("critical", "a0", GPU, "away")
        assert scene.ask("other", "a0", GPU, "away") == []
        assert scene.done("critical/a0") == ["other/a0"]

    def test_the_only_core_is_never_kept(self) -> None:
        scene = Scene(Host("small", 1, 0)).warm_up()
        scene.add("critical", ahead={"own": 50, "away": 50})
        scene.ask("critical", "o0", CORE, "own", own=True)
        scene.add("other", ahead={"own": 3})
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == ["other/x"]

    def test_a_job_that_holds_nobody_up_keeps_nothing(self, scene: Scene) -> None:
        scene.tell(JobExpects(scene.now, "critical", {"critical/own": 1}))
        scene.tell(JobExpects(scene.now, "filler", {"filler/fill": 5}))
        scene.done("critical/o0")
        assert scene.ask("other", "x", CORE, "own", own=True) == ["other/x"]


@given(
    priorities=st.lists(st.floats(0.1, 8.0), min_size=2, max_size=2, unique=True),
    counts=st.lists(st.integers(1, 20), min_size=3, max_size=3),
    had=st.integers(0, 5),
    waited=st.floats(0.0, 1e5),
)
def test_of_jobs_that_differ_in_priority_alone_the_heavier_goes_first(
    priorities: list[float], counts: list[int], had: int, waited: float
) -> None:
    """However long they wait; and the share of time since they came bounds how long a job waits."""
    policy = Predictive()
    policy.resource_joined(Device("g", "gpu"))
    light, heavy = sorted(priorities)
    jobs: list[Any] = [
        SimpleNamespace(id=id, priority=priority, deadline=None, since=0.0, seq=seq)
        for seq, (id, priority) in enumerate([("light", light), ("heavy", heavy), ("other", 1.0)])
    ]
    for job, count in zip(jobs, (counts[0], counts[0], counts[1]), strict=True):
        of, job.priority = job.priority, 7.0
        policy.job_added(job)
        policy.priority_changed(job, of)
        job.priority = of
        stage = Stage("s", job.id, "x", GPU, duration_key="x")
        policy.stage_ready(stage, job)
        for _ in range(had):
            policy.stage_ended(stage, job, 2.0, done=True)
        policy.job_expects(job, {"x": count}, {"x": 2.0})
    of_light, of_heavy, _ = (policy.rank(Stage("s", job.id, "x", GPU), job, waited) for job in jobs)
    assert of_heavy < of_light
    total_s, ahead_s = 2.0 * (had + counts[0]), 2.0 * counts[0]
    share = (light + heavy + 1.0) / light
    assert of_light <= total_s * share - ahead_s + 1e-9
    if waited > 1e4 * max(share, 1.0):
        assert of_light == pytest.approx(total_s * share - ahead_s)


def test_a_job_that_is_gone_counts_no_more() -> None:
    policies = Predictive(), Predictive()
    jobs = [
        SimpleNamespace(id=id, priority=p, deadline=None, since=0.0) for id, p in (("a", 1.0), ("b", 2.0), ("c", 4.0))
    ]
    for policy, known in zip(policies, (jobs, jobs[:2]), strict=True):
        for job in known:
            policy.job_added(job)
            policy.job_expects(job, {"k": 5}, {"k": 3.0})
            policy.stage_ready(Stage("s", job.id, "k", CORE, duration_key="k"), job)
    policies[0].job_removed(jobs[2])
    asked = Stage("t", "a", "k", CORE, duration_key="k")
    assert policies[0].rank(asked, jobs[0], 1.0) == policies[1].rank(asked, jobs[0], 1.0)


def test_what_is_lost_counts_no_more_until_it_is_back() -> None:
    policy = Predictive()
    for resource in (Host("h", 4, 0), Host("o", 2, 0), Device("g", "gpu")):
        policy.resource_joined(resource)
    policy.resource_lost(Host("h", 4, 0))
    policy.resource_lost(Device("g", "gpu"))
    assert [policy._forecast.capacity(of) for of in (None, "gpu")] == [2, 0]
    policy.resource_back(Host("h", 4, 0))
    assert policy._forecast.capacity(None) == 6
