from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.scheduler.resources import Device, Host
from kintune_lab.simulate.host_assignment import SimulatedHosts
from kintune_lab.simulate.plan import MockJob, PlannedJob

HOSTS = [Host("small", 2, 1000), Host("large", 8, 1000), Host("middle", 4, 1000)]
CORES = {host.id: host.cores for host in HOSTS}


def plan(id: str, cores: int = 1) -> PlannedJob:
    return MockJob(device="gpu", rounds=1, select_s=1, build_s=1, profile_s=1, cores=cores).plan(id)


@pytest.fixture
def lodging() -> SimulatedHosts:
    return SimulatedHosts([*HOSTS, Device("gpu", "gpu")])


def test_each_host_gets_as_many_for_each_core(lodging: SimulatedHosts) -> None:
    homes = Counter(lodging.assign(plan(f"j{n}")) for n in range(28))
    assert homes == {"small": 4, "large": 16, "middle": 8}


def test_who_leaves_makes_room(lodging: SimulatedHosts) -> None:
    home = lodging.assign(plan("a"))
    assert lodging.assign(plan("b")) != home
    lodging.leave("a")
    assert lodging.assign(plan("c")) == home


def test_a_process_lives_where_its_stages_can_run(lodging: SimulatedHosts) -> None:
    assert lodging.assign(plan("wide", cores=8)) == "large"
    assert lodging.assign(plan("too wide", cores=9)) is None


def test_who_has_no_process_lives_nowhere(lodging: SimulatedHosts) -> None:
    assert lodging.assign(MockJob(device="gpu", rounds=1, build_s=1, profile_s=1).plan("a")) is None
    assert [lodging.lose(host.id) for host in HOSTS] == [[], [], []]
    assert lodging.back("small") == []


def test_a_lost_host_moves_its_lodgers(lodging: SimulatedHosts) -> None:
    for n in range(14):
        lodging.assign(plan(f"j{n}"))
    moved = lodging.lose("large")
    assert len(moved) == 8
    assert Counter(home for _, home in moved) == {"small": 3, "middle": 5}  # 14 on six cores: 2 and 4 were there
    assert lodging.back("large") == []
    assert lodging.assign(plan("new")) == "large"


def test_the_homeless_wait_for_a_host(lodging: SimulatedHosts) -> None:
    lodging.assign(plan("a"))
    assert [lodging.lose(id) for id in CORES] == [[("a", "large")], [("a", "middle")], []]
    assert lodging.assign(plan("b")) is None
    assert lodging.lose("gpu") == lodging.back("gpu") == []
    assert lodging.back("middle") == [("a", "middle"), ("b", "middle")]


def test_who_has_left_does_not_come_back(lodging: SimulatedHosts) -> None:
    for id in CORES:
        lodging.lose(id)
    lodging.assign(plan("a"))
    lodging.leave("a")
    lodging.leave("never seen")
    assert lodging.back("large") == []


@given(st.lists(st.sampled_from(["come", *CORES]), max_size=60))
def test_nobody_lives_on_a_lost_host(steps: list[str]) -> None:
    lodging = SimulatedHosts(HOSTS)
    homes: dict[str, str | None] = {}
    lost: set[str] = set()
    for step in steps:
        if step == "come":
            name = f"j{len(homes)}"
            homes[name] = lodging.assign(plan(name))
        elif step in lost:
            lost.discard(step)
            homes.update(lodging.back(step))
        else:
            lost.add(step)
            homes.update({job: None for job, home in homes.items() if home == step})
            homes.update(lodging.lose(step))
    assert not lost.intersection(home for home in homes.values() if home is not None)
    assert (None in homes.values()) <= (len(lost) == len(HOSTS))
