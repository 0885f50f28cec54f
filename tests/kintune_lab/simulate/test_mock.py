from __future__ import annotations

import statistics

from kintune_lab.simulate.mock import MockJob
from kintune_lab.simulate.plan import check

FULL = MockJob(
    device="gpu", rounds=3, select_s=1, build_s=2, profile_s=3, update_s=4, start_s=5, end_s=6, prove_s=7, inflight=2
)


def test_stages_follow_each_other_as_in_a_tuning_job() -> None:
    job = FULL.plan("a")
    check([job])
    after = {planned.stage.id: planned.stage.after for planned in job.stages}
    assert after["select-0"] == ("start",)
    assert after["build-0"] == ("select-0",)
    assert after["select-1"] == ("start",)
    assert after["select-2"] == ("update-0",)
    assert after["end"] == ("update-1", "update-2")
    assert after["prove"] == ("end",)
    assert job.work_s() == 3 * (1 + 2 + 3 + 4) + 5 + 6 + 7


def test_who_leads_where_is_told() -> None:
    then = {planned.stage.id: planned.stage.then for planned in FULL.plan("a").stages}
    assert then["prove"] is None
    for id, device in (("start", None), ("select-0", None), ("build-0", "gpu"), ("profile-0", None), ("end", "gpu")):
        demand = then[id]
        assert demand is not None
        assert demand.device == device


def test_the_jobs_own_stages_run_in_its_process() -> None:
    own = {planned.stage.kind for planned in FULL.plan("a").stages if planned.stage.affinity == "a"}
    assert own == {"start", "select", "update", "end"}


def test_stages_of_no_length_are_left_out() -> None:
    job = MockJob(device="gpu", rounds=2, profile_s=1).plan("a")
    assert [planned.stage.id for planned in job.stages] == ["profile-0", "profile-1"]


def test_stretching_multiplies_all_times() -> None:
    slow = MockJob(device="gpu", rounds=2, build_s=3, profile_s=1, stretch=10).plan("a")
    assert [planned.seconds for planned in slow.stages] == [30, 10, 30, 10]


def test_scatter_has_the_mean_that_was_asked_for() -> None:
    job = MockJob(device="gpu", rounds=2000, profile_s=10, spread=0.5).plan("a", seed=1)
    seconds = [planned.seconds for planned in job.stages]
    assert abs(statistics.fmean(seconds) - 10) < 0.4
    assert job == MockJob(device="gpu", rounds=2000, profile_s=10, spread=0.5).plan("a", seed=1)
    assert job != MockJob(device="gpu", rounds=2000, profile_s=10, spread=0.5).plan("a", seed=2)


def test_what_a_job_foretells_is_the_length_without_the_scatter() -> None:
    assert FULL.plan("a").foretold == {}
    job = MockJob(device="gpu", rounds=1, profile_s=3, prove_s=7, stretch=2, spread=0.5, foretells=("profile", "prove"))
    assert job.plan("a").foretold == {"a/profile": 6, "a/prove": 14}
    assert job.plan("a", known_as="b").foretold == {"b/profile": 6, "b/prove": 14}
    keys = {planned.stage.duration_key for planned in job.plan("a").stages}
    assert keys == set(job.plan("a").foretold)
