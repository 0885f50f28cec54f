from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import Scheduler
from kintune_lab.simulate.bound import lower_bound
from kintune_lab.simulate.faults import Faults, Outage
from kintune_lab.simulate.mix import Mix
from kintune_lab.simulate.mock import MockJob
from kintune_lab.simulate.world import World


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
    story = World(Scheduler(policy(name)), resources, jobs, faults=faults).run()
    bound = lower_bound(jobs, resources, outages=faults.outages(resources))
    assert max(job.end for job in story.jobs) >= bound.seconds - 1e-6


def test_all_policies_that_keep_to_limits_are_among_them() -> None:
    assert {name for name, kind in POLICIES.items() if kind.overbooks} == {"synchronous", "uncontrolled"}
