from __future__ import annotations

from itertools import pairwise

import pytest

from kintune.core.stage import Demand, Stage
from kintune.errors import InputError
from kintune_lab.simulate.mix import Mix
from kintune_lab.simulate.plan import PlannedJob, PlannedStage, check


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
