from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from kintune.core.stage import Demand, Stage
from kintune.errors import InputError
from kintune_lab.simulate.entries import Mix
from kintune_lab.simulate.plan import MockJob, PlannedJob, PlannedStage, check


def stage(id: str, seconds: float, *after: str, own: bool = False) -> PlannedStage:
    return PlannedStage(Stage(id, "a", id, Demand(cores=1), "a" if own else None, after=after), seconds)


def test_the_longest_chain_bounds_a_job() -> None:
    job = PlannedJob("a", (stage("x", 1), stage("y", 5, "x"), stage("z", 2, "x")))
    assert (job.path_s(), job.work_s()) == (6.0, 8.0)


def test_stages_of_one_process_come_one_after_the_other() -> None:
    job = PlannedJob("a", (stage("x", 1, own=True), stage("y", 5, own=True), stage("z", 2, own=True)))
    assert job.path_s() == 8.0


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([PlannedJob("a", ()), PlannedJob("a", ())], "two jobs are called 'a'"),
        ([PlannedJob("a", (stage("x", 1), stage("x", 1)))], "two stages of a are called 'x'"),
        ([PlannedJob("a", (stage("x", -1),))], "x is -1 s"),
        ([PlannedJob("a", (stage("x", float("nan")),))], "x is nan s"),
        ([PlannedJob("a", (), at=-2)], "its arrival is -2 s"),
        ([PlannedJob("a", (stage("x", 1, "y"), stage("y", 1, "x")))], "x comes after y"),
    ],
)
def test_jobs_that_cannot_be_played_are_refused(jobs: list[PlannedJob], said: str) -> None:
    with pytest.raises(InputError) as raised:
        check(jobs)
    assert said in str(raised.value)


def test_a_mix_is_drawn_from_its_seed_alone() -> None:
    mix = Mix(jobs=12, arrive_s=100, priorities=(1.0, 4.0))
    assert mix.draw(3) == mix.draw(3)
    assert mix.draw(3) != mix.draw(4)
    assert {job.priority for job in mix.draw(3)} == {1.0, 4.0}
    assert all(0 <= job.at <= 100 for job in mix.draw(3))
    check(mix.draw(3))


def test_more_jobs_want_the_types_of_which_there_is_more() -> None:
    wanted: dict[str, int] = {}
    for job in Mix(jobs=400, rounds=(1.0, 0.0)).draw(0):
        for planned in job.stages:
            if planned.stage.kind == "profile":
                type = planned.stage.demand.device or ""
                wanted[type] = wanted.get(type, 0) + 1
    assert sorted(wanted) == ["typeA", "typeB", "typeC", "typeD"]
    assert all(wanted[more] > wanted[fewer] for more, fewer in pairwise(sorted(wanted)))


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
