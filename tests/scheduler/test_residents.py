from __future__ import annotations

import pytest

from kintune.scheduler.job_state import JobState
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.residents import Residents
from kintune.scheduler.resources import Host
from kintune.scheduler.stage import Demand
from kintune.scheduler.story import Story

CORE = Demand(cores=1)


@pytest.fixture
def pool() -> ResourcePool:
    pool = ResourcePool()
    for name in "abc":
        pool.join(Host(name, 4, 1000))
    return pool


@pytest.fixture
def residents(pool: ResourcePool) -> Residents:
    return Residents(pool)


def job(id: str, seq: int = 0) -> JobState:
    return JobState(id, 1.0, seq, Story(4))


def freest(pool: ResourcePool) -> str | None:
    placement = pool.place(CORE)
    assert placement is not None
    return placement.host


def test_newcomers_are_sent_where_the_fewest_live(pool: ResourcePool, residents: Residents) -> None:
    went = []
    for number in range(6):
        host = freest(pool)
        went.append(host)
        assert residents.settle(job(f"j{number}"), "process", host)
    assert sorted(str(host) for host in went) == ["a", "a", "b", "b", "c", "c"]


def test_free_cores_count_for_more_than_residents(pool: ResourcePool, residents: Residents) -> None:
    residents.settle(job("j"), "process", "a")
    for key, host in (("x", "b"), ("y", "c")):
        placement = pool.place(CORE, host)
        assert placement is not None
        pool.book((key, "stage"), placement)
    assert freest(pool) == "a"


def test_who_lives_there_already_does_not_come_again(pool: ResourcePool, residents: Residents) -> None:
    one = job("j")
    assert residents.settle(one, "process", "a")
    assert not residents.settle(one, "process", "a")
    assert not residents.settle(one, "process", None)
    assert residents.settle(one, "process", "b")
    assert one.homes == {"process": "b"}
    assert residents.evict("a") == []


def test_who_lived_on_a_lost_host_lives_nowhere(pool: ResourcePool, residents: Residents) -> None:
    old, new, told = job("old", 1), job("new", 2), job("told", 3)
    residents.settle(new, "process", "a")
    residents.settle(old, "process", "a")
    residents.settle(old, "another", "a")
    residents.fix(told, "a")
    assert residents.evict("a") == [old, new]
    assert (old.homes, new.homes, told.fixed_home) == ({}, {}, "a")
    residents.leave(told)
    assert freest(pool) == "a"  # nobody is counted there any more


def test_who_is_told_where_to_live_lives_there(pool: ResourcePool, residents: Residents) -> None:
    one = job("j")
    residents.settle(one, "process", "a")
    residents.fix(one, "b")
    assert not residents.settle(one, "process", "b")
    assert (one.homes, one.fixed_home) == ({}, "b")
    assert freest(pool) == "a"
    residents.fix(one, "a")
    assert freest(pool) == "b"


def test_a_home_may_be_told_before_its_host_has_joined(residents: Residents) -> None:
    one = job("j")
    residents.fix(one, "later")
    residents.leave(one)
    assert one.fixed_home is None
