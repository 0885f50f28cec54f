from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import JobAdded, ResourceJoined, StageDone, StageReady, Start
from kintune.scheduler.policies import Fair, Predictive
from kintune.scheduler.policy import Policy
from kintune.scheduler.resources import Device, Host, Placement
from kintune.scheduler.scheduler import Scheduler

GPU = Demand(device="gpu", exclusive=True)


def turns(policy: Policy, weights: dict[str, float], rounds: int) -> list[str]:
    """Return the jobs that get the only device, in order, if all jobs always have a stage for it."""
    scheduler = Scheduler(policy)
    scheduler.handle(ResourceJoined(0, Device("g", "gpu")))
    running: Start | None = None
    for job, weight in weights.items():
        scheduler.handle(JobAdded(0, job, weight))
    for job in weights:
        for decision in scheduler.handle(StageReady(0, Stage("0", job, "profile", GPU))):
            assert isinstance(decision, Start)
            running = decision
    order: list[str] = []
    for n in range(1, rounds + 1):
        assert running is not None
        order.append(running.job)
        scheduler.handle(StageReady(n, Stage(str(n), running.job, "profile", GPU)))
        (decision,) = scheduler.handle(StageDone(n, running.job, running.stage, 0))
        assert isinstance(decision, Start)
        running = decision
    return order


def test_jobs_of_equal_weight_take_turns() -> None:
    order = turns(Fair(), {"a": 1, "b": 1, "c": 1}, 30)
    assert order == ["a", "b", "c"] * 10


def test_a_job_of_twice_the_weight_has_twice_as_many_turns() -> None:
    counts = Counter(turns(Fair(), {"a": 2, "b": 1, "c": 1}, 400))
    assert counts["a"] == pytest.approx(200, abs=4)
    assert counts["b"] == pytest.approx(100, abs=4)


@pytest.mark.parametrize("policy", [Fair, Predictive])
def test_what_is_large_does_not_wait_for_ever_behind_what_is_small(policy: type[Policy]) -> None:
    scheduler = Scheduler(policy())
    scheduler.handle(ResourceJoined(0, Host("h", 2, 0)))
    for job in ("small1", "small2", "small3", "large"):
        scheduler.handle(JobAdded(0, job))
    small = Demand(cores=1)
    running = [d for n in (1, 2, 3) for d in scheduler.handle(StageReady(0, Stage("0", f"small{n}", "x", small)))]
    scheduler.handle(StageReady(0, Stage("0", "large", "x", Demand(cores=2))))
    for n in range(1, 60):
        ended = running.pop(0)
        assert isinstance(ended, Start)
        if ended.job == "large":
            return
        running += scheduler.handle(StageReady(n, Stage(str(n), ended.job, "x", small)))
        running += scheduler.handle(StageDone(n, ended.job, ended.stage, ended.attempt))
    pytest.fail("the large one never ran")


def test_tags_are_those_of_start_time_fair_queueing() -> None:
    fair = Fair()

    def rank(job: str, id: str, priority: float = 1.0) -> float:
        return float(fair.rank(Stage(id, job, "profile", GPU), SimpleNamespace(id=job, priority=priority), 0.0))

    def begin(job: str, id: str) -> None:
        fair.stage_started(Stage(id, job, "profile", GPU), SimpleNamespace(id=job), Placement(None, 0, 0, "g"), 0.0)

    assert [rank("a", id, 2.0) for id in ("0", "1", "0")] == [0.5, 1.0, 0.5]  # a tag is kept
    assert rank("b", "0") == 1.0
    begin("a", "1")  # its start tag is 0.5
    assert rank("c", "0") == 1.5
    begin("a", "0")  # virtual time never goes back
    assert rank("d", "0") == 1.5
    assert rank("b", "1") == 2.0
