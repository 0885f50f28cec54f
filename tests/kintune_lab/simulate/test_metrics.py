from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host, Placement
from kintune.scheduler.scheduler import Scheduler
from kintune_lab.simulate.entries import Mix
from kintune_lab.simulate.faults import Faults, Outage
from kintune_lab.simulate.history import Ending, ScheduleHistory, SimulatedJob, Span
from kintune_lab.simulate.metrics import lower_bound, metrics_of
from kintune_lab.simulate.plan import MockJob, PlannedJob, PlannedStage
from kintune_lab.simulate.simulator import Simulator

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
        SimulatedJob("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0),
        SimulatedJob("b", 3.0, 0.0, 10.0, Ending.DONE, 6.0),
    ),
    decisions=2,
)


def test_a_schedule_in_figures() -> None:
    accounts = metrics_of(STORY, JOBS, RESOURCES)
    assert (accounts.makespan_s, accounts.mean_completion_s, accounts.bound_s) == (10.0, 9.0, 6.0)
    assert accounts.over_bound == pytest.approx(10 / 6)
    assert accounts.use == {"h": pytest.approx(4 / 20), "g": pytest.approx(0.6)}
    assert accounts.kinds == {"h": "host", "g": "device"}
    assert accounts.waiting_s == {"hosts": 2.0, "devices": 1.0}
    assert accounts.worst_wait_s == 2.0
    assert (accounts.endings, accounts.attempts, accounts.decisions) == ({"done": 2}, 2, 2)


def test_a_share_is_the_slowdown_over_that_of_equal_sharing_by_weight() -> None:
    accounts = metrics_of(STORY, JOBS, RESOURCES)
    assert accounts.worst_share == pytest.approx(max(8 / 4 * 1 / 4, 10 / 6 * 3 / 4))


def test_jobs_slowed_alike_are_treated_fairly() -> None:
    jobs = (SimulatedJob("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0), SimulatedJob("b", 1.0, 0.0, 12.0, Ending.DONE, 6.0))
    assert metrics_of(ScheduleHistory((), jobs), JOBS, RESOURCES).fairness == pytest.approx(1.0)


def test_failed_jobs_do_not_count_for_speed() -> None:
    jobs = (SimulatedJob("a", 1.0, 0.0, 8.0, Ending.DONE, 4.0), SimulatedJob("b", 1.0, 0.0, 20.0, Ending.FAILED, 6.0))
    accounts = metrics_of(ScheduleHistory((), jobs), JOBS, RESOURCES)
    assert (accounts.makespan_s, accounts.mean_completion_s) == (20.0, 8.0)
    assert accounts.endings == {"done": 1, "failed": 1}


def test_nothing_at_all_is_an_empty_schedule() -> None:
    accounts = metrics_of(ScheduleHistory((), ()), (), RESOURCES)
    assert (accounts.makespan_s, accounts.over_bound, accounts.fairness) == (0.0, 1.0, 1.0)


def test_the_bound_of_the_resources_alone_leaves_chains_out() -> None:
    chain = PlannedJob(
        "a", (planned("a", "x", 4.0), PlannedStage(Stage("z", "a", "z", Demand(cores=1), after=("x",)), 4.0))
    )
    assert metrics_of(ScheduleHistory((), ()), (chain,), RESOURCES).bound_s == 8.0
    assert metrics_of(ScheduleHistory((), ()), (chain,), RESOURCES, chains=False).bound_s == 4.0


def test_two_jobs_that_share_a_host_need_its_work_and_what_cannot_overlap() -> None:
    job = MockJob(device="gpu", rounds=600, build_s=8.3, profile_s=39.5, update_s=36.4, start_s=1764)
    bound = lower_bound([job.plan("a"), job.plan("b")], [Host("h", 1, 0), Device("g", "gpu")])
    assert bound.what == "the hosts' cores"
    assert bound.seconds / 3600 == pytest.approx(2 * (0.49 + 600 * 44.7 / 3600), rel=1e-3)


def test_what_comes_before_and_after_the_busiest_resource_counts() -> None:
    job = MockJob(device="gpu", rounds=2, select_s=1, profile_s=10, update_s=2)
    bound = lower_bound([job.plan(id) for id in "abc"], [Host("h", 8, 0), Device("g", "gpu")])
    assert bound.seconds == 1 + 60 + 2


def test_what_is_lost_works_for_nobody() -> None:
    job = MockJob(device="gpu", rounds=2, select_s=1, profile_s=10, update_s=2)
    resources = [Host("h", 8, 0), Device("g", "gpu"), Device("g2", "gpu")]
    outages = [
        Outage("g", 0.5, 1.5),  # until a second after work could have begun
        Outage("g2", 4.0, 3.0),  # while both would be at work
        Outage("h", 5.0, 9.0),  # of cores there is plenty
        Outage("g", 100.0, 9.0),  # when everything is done
    ]
    bound = lower_bound([job.plan(id) for id in "abc"], resources, outages=outages)
    assert bound.seconds == pytest.approx(1 + (60 + 1 + 3) / 2 + 2)
    assert bound.what == "devices of type gpu"
    without = lower_bound([job.plan(id) for id in "abc"], resources)
    assert without.seconds == 1 + 60 / 2 + 2


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["sequential", "greedy", "fair", "predictive"]),
    outages_each=st.sampled_from([0.0, 2.0]),
)
def test_no_schedule_beats_the_bound(seed: int, name: str, outages_each: float) -> None:
    mix = Mix(jobs=5, hosts=2, cores=2, types=(2, 1), rounds=(3.0, 0.8), arrive_s=100.0)
    faults = Faults(seed, failing=0.02, outages_each=outages_each, span_s=200.0)
    jobs, resources = mix.draw(seed), mix.resources()
    history = Simulator(Scheduler(policy(name)), resources, jobs, faults=faults).run()
    bound = lower_bound(jobs, resources, outages=faults.outages(resources))
    assert max(job.end for job in history.jobs) >= bound.seconds - 1e-6


def test_all_policies_that_keep_to_limits_are_among_them() -> None:
    assert {name for name, kind in POLICIES.items() if kind.overbooks} == {"synchronous", "uncontrolled"}
