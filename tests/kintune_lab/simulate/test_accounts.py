from __future__ import annotations

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.resources import Device, Host, Placement
from kintune_lab.simulate.accounts import accounts_of
from kintune_lab.simulate.plan import PlannedJob, PlannedStage
from kintune_lab.simulate.span import Ending, JobStory, ScheduleHistory, Span

RESOURCES = (Host("h", 2, 0), Device("g", "gpu"))


def planned(job: str, id: str, seconds: float, device: str | None = None) -> PlannedStage:
    demand = Demand(device=device, exclusive=True) if device else Demand(cores=1)
    return PlannedStage(Stage(id, job, id, demand), seconds)


JOBS = (
    PlannedJob("a", (planned("a", "x", 4.0),)),
    PlannedJob("b", (planned("b", "y", 6.0, "gpu"),), priority=3.0),
)
STORY = ScheduleHistory(
    (
        Span("a", "x", "x", Placement("h", 1), 0.0, 2.0, 6.0, 4.0),
        Span("b", "y", "y", Placement(device="g", exclusive=True), 0.0, 1.0, 7.0, 6.0),
    ),
    (
        JobStory("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0),
        JobStory("b", 3.0, 0.0, 10.0, Ending.DONE, 6.0),
    ),
    decisions=2,
)


def test_a_schedule_in_figures() -> None:
    accounts = accounts_of(STORY, JOBS, RESOURCES)
    assert (accounts.makespan_s, accounts.mean_completion_s, accounts.bound_s) == (10.0, 9.0, 6.0)
    assert accounts.over_bound == pytest.approx(10 / 6)
    assert accounts.use == {"h": pytest.approx(4 / 20), "g": pytest.approx(0.6)}
    assert accounts.kinds == {"h": "host", "g": "device"}
    assert accounts.waiting_s == {"hosts": 2.0, "devices": 1.0}
    assert accounts.worst_wait_s == 2.0
    assert (accounts.endings, accounts.attempts, accounts.decisions) == ({"done": 2}, 2, 2)


def test_a_share_is_the_slowdown_over_that_of_equal_sharing_by_weight() -> None:
    accounts = accounts_of(STORY, JOBS, RESOURCES)
    assert accounts.worst_share == pytest.approx(max(8 / 4 * 1 / 4, 10 / 6 * 3 / 4))


def test_jobs_slowed_alike_are_treated_fairly() -> None:
    jobs = (JobStory("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0), JobStory("b", 1.0, 0.0, 12.0, Ending.DONE, 6.0))
    assert accounts_of(ScheduleHistory((), jobs), JOBS, RESOURCES).fairness == pytest.approx(1.0)


def test_failed_jobs_do_not_count_for_speed() -> None:
    jobs = (JobStory("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0), JobStory("b", 1.0, 0.0, 20.0, Ending.FAILED, 6.0))
    accounts = accounts_of(ScheduleHistory((), jobs), JOBS, RESOURCES)
    assert (accounts.makespan_s, accounts.mean_completion_s) == (20.0, 8.0)
    assert accounts.endings == {"done": 1, "failed": 1}


def test_nothing_at_all_is_an_empty_schedule() -> None:
    accounts = accounts_of(ScheduleHistory((), ()), (), RESOURCES)
    assert (accounts.makespan_s, accounts.over_bound, accounts.fairness) == (0.0, 1.0, 1.0)


def test_the_bound_of_the_resources_alone_leaves_chains_out() -> None:
    chain = PlannedJob(
        "a", (planned("a", "x", 4.0), PlannedStage(Stage("z", "a", "z", Demand(cores=1), after=("x",)), 4.0))
    )
    assert accounts_of(ScheduleHistory((), ()), (chain,), RESOURCES).bound_s == 8.0
    assert accounts_of(ScheduleHistory((), ()), (chain,), RESOURCES, chains=False).bound_s == 4.0
