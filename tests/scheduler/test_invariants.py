"""Invariants of every sequence of events, under every policy, with bundling and without."""

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import (
    Cancel,
    Decision,
    Event,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    JobMoved,
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES, Fair, Greedy, Predictive, Sequential
from kintune.scheduler.policy import Policy, RankedPolicy
from kintune.scheduler.resources import Device, Host, Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from tests.support.examples import MUTANTS, PROFILE
from tests.support.free_resources import fits

DEMANDS = [
    Demand(cores=1),
    Demand(cores=3, memory_mb=500),
    Demand(device="cpu", exclusive=True),
    Demand(device="gpu", exclusive=True),
    Demand(device="gpu", cores=1),
    Demand(device="gpu", cores=3),
    Demand(cores=1, device="cpu"),
]
RESOURCES: list[Resource] = [Host("h1", 4, 1000), Host("h2", 3, 600)]
DEVICES: list[Resource] = [
    Device("c1", "cpu", host="h1", on_host_cores=True),
    Device("g1", "gpu", capacity=2),
    Device("g2", "gpu", host="h2"),
]
KINDS = ["select", "build", "profile"]


class Oldest(RankedPolicy):
    """The default ranks: higher priority, then the older job."""

    name = "oldest"


class Schedule(RuleBasedStateMachine):
    """Drives a scheduler as an engine does, with all kinds of failures in any order."""

    policy: type[Policy]
    bundling: bool

    def new_scheduler(self) -> Scheduler:
        return Scheduler(self.policy(), RetryLimits(bundling=self.bundling))

    @initialize()
    def begin(self) -> None:
        self.scheduler, self.auditor = (
            self.new_scheduler(),
            Auditor(overbooks=self.policy.overbooks, starvation_free=self.policy.starvation_free),
        )
        self.now = 0.0
        self.log: list[tuple[Event, list[Decision]]] = []
        self.jobs: list[str] = []
        self.closing: set[str] = set()
        self.lost: set[str] = set()
        self.hosts = {host.id: host for host in RESOURCES if isinstance(host, Host)}
        self.waiting: list[Stage] = []
        self.retries: dict[tuple[str, str], RetryAt] = {}
        self.count = 0
        self.added: dict[str, tuple[float, int]] = {}
        self.homes: dict[tuple[str, str], str] = {}
        self.fixed: dict[str, str | None] = {}
        for resource in [*RESOURCES, *DEVICES]:
            self.tell(ResourceJoined(self.now, resource))

    def tell(self, event: Event) -> None:
        decisions = self.scheduler.handle(event)
        self.hear(event)
        self.auditor.observe(event, [])
        for number, decision in enumerate(decisions):
            if isinstance(decision, Start):
                self.goes_first(decision)
                self.settle(decision)
            self.auditor._check(event.now, decision)
            assert number + 1 < len(decisions) or self.policy.overbooks or not self.auditor._check_books()  # type: ignore[func-returns-value]
        self.nothing_that_fits_waits()
        self.log.append((event, decisions))
        for decision in decisions:
            match decision:
                case RetryAt():
                    self.retries[decision.job, decision.stage] = decision
                case GiveUp():
                    self.closing.add(decision.job)
                case Cancel():
                    pass

    def hear(self, event: Event) -> None:
        """Note what ranks and homes depend on."""
        match event:
            case JobAdded():
                self.added[event.job] = -event.priority, len(self.added)
                self.fixed[event.job] = event.home
            case JobMoved():
                self.fixed[event.job] = event.home
            case PriorityChanged():
                self.added[event.job] = -event.priority, self.added[event.job][1]
            case ResourceLost():
                self.homes = {process: host for process, host in self.homes.items() if host != event.resource}
            case _:
                pass

    def settle(self, start: Start) -> None:
        """Note where a process lives: where its first stage was placed."""
        affinity = self.auditor._live[start.job, start.stage].stage.affinity
        if affinity is not None and start.placement.host is not None:
            self.homes[start.job, affinity] = start.placement.host

    def that_fit(self) -> list[Stage]:
        """The stages that could start now."""
        live = self.auditor._live
        busy = {(seen.stage.job, seen.stage.affinity) for seen in live.values() if seen.placement is not None}
        able = [seen.stage for key, seen in live.items() if self.auditor._could_start(key, seen)]
        there = {id: each for id, each in self.auditor._resources.items() if id not in self.auditor._lost}
        booked = [seen.placement for seen in live.values() if seen.placement is not None]
        return [
            stage
            for stage in able
            if stage.affinity is None or (stage.job, stage.affinity) not in busy
            if fits(
                there,
                booked,
                stage.demand,
                stage.affinity and (self.fixed[stage.job] or self.homes.get((stage.job, stage.affinity))),
            )
        ]

    @property
    def is_plain(self) -> bool:
        """Whether nothing but ranks decides, and nothing is reserved."""
        return self.policy in (Greedy, Oldest) and not self.bundling

    def goes_first(self, start: Start) -> None:
        """Of the stages that fit, none is of a job of higher priority, or of an older one of the same."""
        if self.policy is Oldest and not self.bundling:
            ranks = {stage.key: self.added[stage.job] for stage in self.that_fit()}
            assert ranks[start.job, start.stage] == min(ranks.values())

    def nothing_that_fits_waits(self) -> None:
        assert not self.is_plain or not self.that_fit()

    def number(self) -> str:
        self.count += 1
        return str(self.count)

    def live(self) -> list[str]:
        return [job for job in self.jobs if job not in self.closing]

    @rule(
        priority=st.sampled_from([0.5, 1.0, 3.0]),
        deadline=st.none() | st.floats(0, 100),
        home=st.sampled_from([None, None, "h1", "h2"]),
    )
    def add_job(self, priority: float, deadline: float | None, home: str | None) -> None:
        job = "j" + self.number()
        self.jobs.append(job)
        self.tell(JobAdded(self.now, job, priority, deadline, home))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), home=st.sampled_from(["h1", "h2"]))
    def move_a_job(self, data: st.DataObject, home: str) -> None:
        self.tell(JobMoved(self.now, data.draw(st.sampled_from(self.live())), home))

    @precondition(lambda self: self.live())
    @rule(
        data=st.data(),
        ahead=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 5)),
        seconds=st.dictionaries(st.sampled_from(KINDS), st.floats(0, 100)),
    )
    def expect(self, data: st.DataObject, ahead: dict[str, int], seconds: dict[str, float]) -> None:
        self.tell(JobExpects(self.now, data.draw(st.sampled_from(self.live())), ahead, seconds))

    @precondition(lambda self: self.live())
    @rule(
        data=st.data(),
        kind=st.sampled_from(KINDS),
        demand=st.sampled_from(DEMANDS),
        bound=st.booleans(),
        then=st.none() | st.sampled_from(DEMANDS),
    )
    def ask(self, data: st.DataObject, kind: str, demand: Demand, bound: bool, then: Demand | None) -> None:
        job = data.draw(st.sampled_from(self.live()))
        mine = [stage.id for stage in self.waiting if stage.job == job]
        after = tuple(data.draw(st.lists(st.sampled_from(mine), max_size=2, unique=True))) if mine else ()
        stage = Stage(
            "s" + self.number(),
            job,
            kind,
            demand,
            affinity=job if bound and demand.device is None else None,
            duration_key=kind,
            after=after,
            then=then,
        )
        self.waiting.append(stage)
        self.tell(StageReady(self.now, stage))

    @precondition(lambda self: self.auditor.running)
    @rule(data=st.data(), outcome=st.sampled_from(["done", "failed", "hopeless"]))
    def end_a_stage(self, data: st.DataObject, outcome: str) -> None:
        stage, attempt = data.draw(st.sampled_from(self.auditor.running))
        if outcome == "done":
            self.tell(StageDone(self.now, stage.job, stage.id, attempt))
        else:
            self.tell(StageFailed(self.now, stage.job, stage.id, attempt, "boom", retryable=outcome == "failed"))

    @precondition(lambda self: self.retries)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        due = self.retries.pop(data.draw(st.sampled_from(sorted(self.retries))))
        self.now = max(self.now, due.when)
        self.tell(RetryDue(self.now, due.job, due.stage, due.attempt))

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def drop_a_waiting_stage(self, data: st.DataObject) -> None:
        running = {stage.key for stage, _ in self.auditor.running}
        waiting = [key for key in self.auditor.live if key not in running and key[0] not in self.closing]
        if waiting:
            job, id = data.draw(st.sampled_from(waiting))
            self.retries.pop((job, id), None)
            self.tell(StageDropped(self.now, job, id))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), priority=st.sampled_from([0.5, 1.0, 3.0]))
    def change_priority(self, data: st.DataObject, priority: float) -> None:
        self.tell(PriorityChanged(self.now, data.draw(st.sampled_from(self.live())), priority))

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cancel_a_job(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.live()))
        self.closing.add(job)
        self.tell(JobCancelled(self.now, job, "no longer wanted"))
        self.end(job)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def end_a_job(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.jobs)))

    def end(self, job: str) -> None:
        self.jobs.remove(job)
        self.closing.add(job)
        self.tell(JobEnded(self.now, job))

    @rule(data=st.data())
    def lose_or_return_a_resource(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([each.id for each in [*RESOURCES, *DEVICES]]))
        if id in self.lost:
            self.lost.discard(id)
            grows = id in self.hosts and data.draw(st.booleans())
            if grows:
                host = self.hosts[id] = msgspec.structs.replace(self.hosts[id], cores=self.hosts[id].cores + 1)
                self.tell(ResourceJoined(self.now, host))
            else:
                self.tell(ResourceBack(self.now, id))
        else:
            self.lost.add(id)
            self.tell(ResourceLost(self.now, id, "no answer"))

    @rule(step=st.floats(0, 10))
    def pass_time(self, step: float) -> None:
        self.now += step

    @invariant()
    def one_job_at_a_time_if_sequential(self) -> None:
        if self.policy is Sequential and hasattr(self, "auditor"):
            assert len(self.auditor.running) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.replays()
        self.everything_ends_once_nothing_goes_wrong()

    def replays(self) -> None:
        again = self.new_scheduler()
        for event, decisions in self.log:
            read_back = msgspec.json.decode(msgspec.json.encode(event), type=Event)
            assert again.handle(read_back) == decisions

    def everything_ends_once_nothing_goes_wrong(self) -> None:
        for id in sorted(self.lost):
            self.tell(ResourceBack(self.now, id))
        while self.jobs or self.auditor.running:
            for stage, attempt in self.auditor.running[:1]:
                self.tell(StageDone(self.now, stage.job, stage.id, attempt))
            if self.auditor.running:
                continue
            for key in list(self.retries):
                due = self.retries.pop(key)
                self.now = max(self.now, due.when)
                self.tell(RetryDue(self.now, due.job, due.stage, due.attempt))
            if not self.auditor.running and self.jobs:
                unfinished = {job for job, _ in self.auditor.live}
                finished = [job for job in self.jobs if job not in unfinished]
                assert finished, "nothing runs, and no job is finished"
                self.end(finished[0])
        assert self.auditor.live == []


@pytest.mark.parametrize("bundling", [False, True], ids=["", "bundling"])
@pytest.mark.parametrize("policy", [*POLICIES.values(), Oldest], ids=lambda policy: policy.name)
def test_the_laws_hold(policy: type[Policy], bundling: bool) -> None:
    class ThisSchedule(Schedule):
        pass

    ThisSchedule.policy = policy
    ThisSchedule.bundling = bundling
    run_state_machine_as_test(
        ThisSchedule,
        settings=settings(
            max_examples=8 if PROFILE == MUTANTS else 25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def calls_an_event(policy: Policy, jobs: int, devices: int) -> float:
    """How many Python and C functions one event costs on average, with this many jobs and devices."""
    scheduler = Scheduler(policy)
    scheduler.handle(ResourceJoined(0, Host("h", 4, 0)))
    for n in range(devices):
        scheduler.handle(ResourceJoined(0, Device(f"d{n}", "gpu")))
    for n in range(jobs):
        scheduler.handle(JobAdded(0, f"j{n}"))
        scheduler.handle(StageReady(0, Stage("s0", f"j{n}", "profile", Demand(device="gpu", exclusive=True))))
    calls = 0

    def count(_frame: FrameType, what: str, _argument: Any) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    rounds = 40
    sys.setprofile(count)
    try:
        for n in range(rounds):
            job = "j0" if policy.name == "sequential" else f"j{n}"
            id = f"s{n}" if policy.name == "sequential" else "s0"
            scheduler.handle(StageReady(1, Stage(f"s{n + 1}", job, "profile", Demand(device="gpu", exclusive=True))))
            scheduler.handle(StageDone(1, job, id, 0))
    finally:
        sys.setprofile(None)
    return calls / rounds


@pytest.mark.parametrize("policy", [Sequential, Greedy, Fair, Predictive])
def test_a_decision_costs_no_more_with_many_jobs_and_devices(policy: type[Policy]) -> None:
    few = calls_an_event(policy(), jobs=60, devices=50)
    many = calls_an_event(policy(), jobs=3000, devices=500)
    assert many < 1.5 * few
