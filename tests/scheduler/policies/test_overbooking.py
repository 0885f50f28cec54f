"""Policies that start stages whether resources are free or not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import (
    Decision,
    Event,
    JobAdded,
    JobEnded,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageReady,
    Start,
)
from kintune.scheduler.policies import Sequential, Synchronous, Uncontrolled
from kintune.scheduler.policy import Policy
from kintune.scheduler.resources import Device, Host, Placement
from kintune.scheduler.scheduler import Scheduler

CORES, GPU = Demand(cores=4, memory_mb=100), Demand(device="gpu", exclusive=True)
HOSTS = [Host("h", 4, 100), Host("o", 4, 100)]


class Scene:
    """A scheduler and the stages that it started."""

    def __init__(self, policy: Policy, *resources: Host | Device, jobs: str = "j") -> None:
        self.scheduler = Scheduler(policy)
        for event in (*(ResourceJoined(0, each) for each in resources), *(JobAdded(0, job) for job in jobs)):
            self.tell(event)

    def tell(self, event: Event) -> list[Start]:
        self.now = event.now
        decisions: list[Decision] = self.scheduler.handle(event)
        return [each for each in decisions if isinstance(each, Start)]

    def ask(self, id: str, demand: Demand = CORES, job: str = "j", affinity: str | None = None) -> list[Start]:
        return self.tell(StageReady(self.now, Stage(id, job, id, demand, affinity)))


@given(kinds=st.lists(st.sampled_from(["cores", "gpu", "near"]), min_size=1, max_size=30))
def test_without_control_each_starts_at_once_where_fewest_are(kinds: list[str]) -> None:
    """On the device and the host with the fewest stages, the older one of equals; and a device's host is its own."""
    demands = {"cores": CORES, "gpu": GPU, "near": Demand(cores=1, device="near")}
    scene = Scene(Uncontrolled(), *HOSTS, *(Device(f"g{n}", "gpu") for n in range(3)), Device("n", "near", host="o"))
    users: Counter[str | None] = Counter()
    for number, kind in enumerate(kinds):
        (start,) = scene.ask(str(number), demands[kind])
        there, demand = start.placement, demands[kind]
        if kind == "gpu":
            assert there == Placement(None, 0, 0, min(("g0", "g1", "g2"), key=lambda id: (users[id], id)), True)
        else:
            host = "o" if kind == "near" else min(("h", "o"), key=lambda id: (users[id], id))
            device = "n" if kind == "near" else None
            assert there == Placement(host, demand.cores, demand.memory_mb, device)
        users.update([there.host, there.device])


def test_without_control_nothing_starts_where_all_is_lost() -> None:
    scene = Scene(Uncontrolled(), HOSTS[0], Device("n", "near", host="h"), Device("g", "gpu"))
    near = Demand(cores=1, device="near")
    scene.tell(ResourceLost(0, "h", "gone"))
    assert scene.ask("a") == scene.ask("b", near) == scene.ask("c", Demand(cores=1, device="gpu")) == []
    assert [each.stage for each in scene.ask("d", GPU)] == ["d"]
    assert {each.stage for each in scene.tell(ResourceBack(1, "h"))} == {"a", "b", "c"}


def test_without_control_a_process_stays_on_its_host() -> None:
    scene = Scene(Uncontrolled(), *HOSTS)
    (first,) = scene.ask("a", affinity="j")
    assert first.placement.host == "h"
    for id in "bc":
        scene.ask(id)
    scene.tell(StageDone(1, "j", "a", 0))
    (again,) = scene.ask("d", affinity="j")
    assert again.placement.host == "h"


def test_in_lockstep_one_stage_of_each_job_starts_once_all_wait_and_nothing_runs() -> None:
    scene = Scene(Synchronous(), HOSTS[0], jobs="abc")
    assert scene.ask("0", job="a") == scene.ask("0", job="b") == []
    assert scene.ask("1", job="a") == []
    assert [(each.job, each.stage) for each in scene.ask("0", job="c")] == [("a", "0"), ("b", "0"), ("c", "0")]
    assert scene.ask("1", job="b") == scene.ask("1", job="c") == []
    assert scene.tell(StageDone(1, "a", "0", 0)) == scene.tell(StageDone(1, "b", "0", 0)) == []
    assert [each.job for each in scene.tell(StageDone(1, "c", "0", 0))] == ["a", "b", "c"]
    for job in "ab":
        assert scene.tell(StageDone(2, job, "1", 0)) == []
        assert scene.ask("2", job=job) == []
    assert scene.tell(StageDone(2, "c", "1", 0)) == []
    assert [each.job for each in scene.tell(JobEnded(3, "c"))] == ["a", "b"]


def test_in_lockstep_a_job_without_a_place_is_left_out() -> None:
    scene = Scene(Synchronous(), HOSTS[0], Device("g", "gpu"), jobs="ab")
    scene.tell(ResourceLost(0, "g", "gone"))
    assert scene.ask("0", GPU, job="a") == []
    assert [each.job for each in scene.ask("0", job="b")] == ["b"]


@pytest.mark.parametrize("policy", [Sequential, Synchronous, Uncontrolled])
def test_what_finds_no_place_waits(policy: type[Policy]) -> None:
    scene = Scene(policy(), HOSTS[0])
    scene.tell(ResourceLost(0, "h", "gone"))
    assert scene.ask("a") == []
    assert [each.stage for each in scene.tell(ResourceBack(1, "h"))] == ["a"]
