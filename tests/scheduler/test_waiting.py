"""Under a starvation-free policy no stage waits for ever, whatever the ranks."""

from __future__ import annotations

from typing import Any

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import (
    Event,
    JobAdded,
    JobCancelled,
    JobEnded,
    PriorityChanged,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageReady,
    Start,
)
from kintune.scheduler.invariants import Auditor, InvariantError
from kintune.scheduler.policy import JobFacts, RankedPolicy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler

GPU = Demand(device="gpu", exclusive=True)
CORE = Demand(cores=1)


class Unkind(RankedPolicy):
    """Ranks job `late` last."""

    name = "unkind"

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        return (job.id == "late", job.seq)


class UnkindButBounded(Unkind):
    starvation_free = True


def starts_before_late(
    policy: RankedPolicy, demand: Demand, *, leads: bool, bundling: bool = False, most: int = 400
) -> int:
    """Return how many stages of two other jobs start before the one of `late`; an auditor checks the bound."""
    scheduler, auditor = Scheduler(policy, RetryLimits(bundling=bundling)), Auditor(starvation_free=True)
    started: list[Start] = []
    running: list[Start] = []

    def tell(event: Event) -> None:
        decisions = scheduler.handle(event)
        auditor.observe(event, decisions)
        for decision in decisions:
            assert isinstance(decision, Start)
            started.append(decision)
            running.append(decision)

    def ask(job: str, n: int) -> None:
        then = (GPU if leads and job != "late" else CORE) if demand is CORE else None
        tell(StageReady(float(n), Stage(str(n), job, "stage", demand, then=then)))

    tell(ResourceJoined(0.0, Host("h", 1, 0)))
    tell(ResourceJoined(0.0, Device("g", "gpu")))
    for job in ("a", "b", "late"):
        tell(JobAdded(0.0, job))
        ask(job, 0)
    for n in range(1, most):
        done = running.pop(0)
        if done.job == "late":
            return len(started)
        ask(done.job, n)
        tell(StageDone(float(n), done.job, done.stage, 0))
    return most


@pytest.mark.parametrize("bundling", [False, True])
@pytest.mark.parametrize("demand", [GPU, CORE])
@pytest.mark.parametrize("leads", [False, True])
def test_a_bounded_policy_lets_everybody_go(demand: Demand, leads: bool, bundling: bool) -> None:
    starts = starts_before_late(UnkindButBounded(), demand, leads=leads, bundling=bundling)
    assert 8 + 4 * 3 <= starts <= 8 + 4 * 3 + 4


def test_the_auditor_sees_it_when_one_does_not() -> None:
    with pytest.raises(InvariantError, match="waits while"):
        starts_before_late(Unkind(), GPU, leads=False)


@pytest.mark.parametrize("lost_after", [0, 20])
def test_a_stage_that_waits_for_a_lost_device_keeps_no_host_from_others(lost_after: int) -> None:
    """Neither when the device was lost before the stage claims its host, nor when it is lost later."""
    scheduler = Scheduler(UnkindButBounded())
    scheduler.handle(ResourceJoined(0.0, Host("h", 1, 0)))
    scheduler.handle(ResourceJoined(0.0, Device("g", "gpu", host="h")))
    for job in ("a", "b", "late"):
        scheduler.handle(JobAdded(0.0, job))
    for job in ("b", "late"):
        scheduler.handle(StageReady(0.0, Stage("0", job, "profile", GPU)))
    started: list[str] = []
    for n in range(40):
        decisions = scheduler.handle(ResourceLost(float(n), "g", "gone")) if n == lost_after else []
        decisions += scheduler.handle(StageReady(float(n), Stage(str(n), "a", "build", CORE)))
        while starts := [each for each in decisions if isinstance(each, Start)]:
            started.append(starts[0].stage)
            decisions = scheduler.handle(StageDone(float(n), "a", starts[0].stage, 0))
        assert n < lost_after or started[-1] == str(n)
    assert started == [str(n) for n in range(40)]


@pytest.mark.parametrize("demand", [GPU, CORE])
def test_what_is_held_for_a_job_s_next_stage_is_given_to_one_that_is_overdue(demand: Demand) -> None:
    """Else a job that always goes on with what it has would be overtaken by nobody."""
    scheduler, auditor = Scheduler(UnkindButBounded(), RetryLimits(bundling=True)), Auditor(starvation_free=True)
    started: list[Start] = []

    def tell(event: Event) -> None:
        decisions = scheduler.handle(event)
        auditor.observe(event, decisions)
        started.extend(each for each in decisions if isinstance(each, Start))

    for event in (ResourceJoined(0.0, Host("h", 1, 0)), ResourceJoined(0.0, Device("g", "gpu"))):
        tell(event)
    for job in ("a", "late"):
        tell(JobAdded(0.0, job))
        tell(StageReady(0.0, Stage("0", job, "stage", demand, then=demand)))
    for n in range(1, 1 + 8 + 4 * 2 + 1):  # the first one came before the other waited
        assert started[-1].job == "a"
        tell(StageDone(float(n), "a", started[-1].stage, 0))
        if len(started) == n:
            tell(StageReady(float(n), Stage(str(n), "a", "stage", demand, then=demand)))
    assert started[-1].job == "late"


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("priority", [1.0, 3.0])
def test_how_many_go_before_one_follows_from_all_priorities(priority: float, changed: bool) -> None:
    """Eight, and four for each unit of the sum of priorities; jobs that are over do not count."""
    scheduler = Scheduler(UnkindButBounded())
    scheduler.handle(ResourceJoined(0.0, Device("g", "gpu")))
    for event in (JobAdded(0.0, "over", 9.0), JobEnded(0.0, "over"), JobAdded(0.0, "gone", 9.0)):
        scheduler.handle(event)
    scheduler.handle(JobCancelled(0.0, "gone", "unwanted"))
    scheduler.handle(JobAdded(0.0, "a", 5.0 if changed else priority))
    if changed:
        scheduler.handle(PriorityChanged(0.0, "a", priority))
    scheduler.handle(JobAdded(0.0, "late"))
    (running,) = scheduler.handle(StageReady(0.0, Stage("first", "a", "stage", GPU)))
    assert scheduler.handle(StageReady(0.0, Stage("late", "late", "stage", GPU))) == []
    before = 0
    while isinstance(running, Start) and running.job == "a":
        scheduler.handle(StageReady(1.0, Stage(str(before), "a", "stage", GPU)))
        (running,) = scheduler.handle(StageDone(1.0, "a", running.stage, 0))
        before += 1
    assert before - 1 == 8 + 4 * (priority + 1.0)


def test_a_large_stage_claims_a_host_once_eight_others_took_what_it_waits_for() -> None:
    """Two cores, one of which always runs something small; from the ninth on nothing small starts."""
    scheduler = Scheduler(UnkindButBounded())
    scheduler.handle(ResourceJoined(0.0, Host("h", 2, 0)))
    for job in ("a", "b", "late"):
        scheduler.handle(JobAdded(0.0, job))
    running = [d for job in "ab" for d in scheduler.handle(StageReady(0.0, Stage("first", job, "stage", CORE)))]
    assert scheduler.handle(StageReady(0.0, Stage("late", "late", "stage", Demand(cores=2)))) == []
    small = 0
    while running:
        done = running.pop(0)
        assert isinstance(done, Start)
        if done.job == "late":
            break
        started = scheduler.handle(StageReady(1.0, Stage(str(small), done.job, "stage", CORE)))
        started += scheduler.handle(StageDone(1.0, done.job, done.stage, 0))
        small += sum(isinstance(each, Start) and each.job != "late" for each in started)
        running += started
    assert small == 8
