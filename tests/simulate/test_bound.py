from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.scheduler.machine import Machine
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host
from kintune.simulate.bound import lower_bound
from kintune.simulate.mix import Mix
from kintune.simulate.mock import MockJob
from kintune.simulate.world import World


def test_two_jobs_that_share_a_host_need_its_work_and_what_cannot_overlap() -> None:
    job = MockJob(device="gpu", rounds=600, build_s=8.3, profile_s=39.5, update_s=36.4, start_s=1764)
    bound = lower_bound([job.plan("a"), job.plan("b")], [Host("h", 1, 0), Device("g", "gpu")])
    assert bound.what == "the hosts' cores"
    assert bound.seconds / 3600 == pytest.approx(2 * (0.49 + 600 * 44.7 / 3600), rel=1e-3)


def test_what_comes_before_and_after_the_busiest_resource_counts() -> None:
    job = MockJob(device="gpu", rounds=2, select_s=1, profile_s=10, update_s=2)
    bound = lower_bound([job.plan(id) for id in "abc"], [Host("h", 8, 0), Device("g", "gpu")])
    assert bound.seconds == 1 + 60 + 2


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["sequential", "greedy", "fair", "predictive"]))
def test_no_schedule_beats_the_bound(seed: int, name: str) -> None:
    mix = Mix(jobs=5, hosts=2, cores=2, types=(2, 1), rounds=(3.0, 0.8), arrive_s=100.0)
    jobs, resources = mix.draw(seed), mix.resources()
    story = World(Machine(policy(name)), resources, jobs).run()
    assert max(job.end for job in story.jobs) >= lower_bound(jobs, resources).seconds - 1e-6


def test_all_policies_that_keep_to_limits_are_among_them() -> None:
    assert {name for name, kind in POLICIES.items() if kind.waives} == {"synchronous", "uncontrolled"}
