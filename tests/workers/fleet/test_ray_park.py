"""What nodes of a cluster offer; that they do it is tested with a real cluster, in `test_ray_cluster.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kintune.errors import InputError
from kintune.scheduler.events import JobAdded
from kintune.workers.fleet import ray_cluster as ray_park
from kintune.workers.fleet.backlog import Backlog
from kintune.workers.fleet.growth import Growth
from kintune.workers.fleet.offer import OfferedDevices
from kintune.workers.fleet.ray_cluster import Growing, RayCluster, offer_of, ray_address
from kintune.workers.fleet.ray_node import NodeOffer


@pytest.mark.parametrize(
    ("engine", "address"),
    [
        ("local", None),
        ("ray", ""),
        ("ray://head:10001", "ray://head:10001"),
        ("10.0.0.1:6379", "10.0.0.1:6379"),
    ],
)
def test_addresses(engine: str, address: str | None) -> None:
    assert ray_address(engine) == address


@pytest.mark.parametrize("engine", ["", "dask", "ray:", "http://head:1", "ray://head"])
def test_what_is_no_engine(engine: str) -> None:
    with pytest.raises(InputError, match="there are 'local', 'ray', and the address of a cluster"):
        ray_address(engine)


def node(**resources: float) -> dict[str, Any]:
    return {"NodeID": "0123456789abcdef", "Alive": True, "Resources": resources}


def test_a_node_offers_its_cores_and_the_devices_that_it_is_said_to_have() -> None:
    described = node(**{"CPU": 8.0, "memory": 4.0 * 2**30, "node:10.0.0.2": 1.0, "kintune-device-pi5": 2.0})
    assert offer_of(described) == NodeOffer("ray-0123456789ab", 6, 4096, {"pi5": 2})


@pytest.mark.parametrize(
    "resources", [{}, {"CPU": 0.0}, {"CPU": 1.0, "kintune-device-a": 1.0, "kintune-device-b": 1.0}]
)
def test_a_node_with_nothing_to_offer(resources: dict[str, float]) -> None:
    assert offer_of(node(**resources)) is None


def test_devices_are_the_last_cores_that_a_nodes_processes_may_use() -> None:
    cores, devices = NodeOffer("n", 2, 0, {"a": 1, "b": 2}).place((3, 4, 7, 8, 9))
    assert cores == (3, 4)
    assert devices == [OfferedDevices("a", {"cpu:7": (7,)}), OfferedDevices("b", {"cpu:8": (8,), "cpu:9": (9,)})]
    with pytest.raises(InputError, match="n is to offer 5 cores, and its processes may use 4"):
        NodeOffer("n", 2, 0, {"a": 3}).place((0, 1, 2, 3))


class FakeRay:
    """A cluster without nodes, which is not always there."""

    def __init__(self) -> None:
        self.looks = 0
        self.connections = 0
        self.connected = False
        self.asked: list[int] = []
        self.there: list[dict[str, Any]] = []
        self.started = 0
        self.looked_again = threading.Semaphore(0)
        self.answers: Callable[[], bool] = lambda: True
        self.hears: Callable[[], bool] = lambda: True
        self.away: Callable[[], bool] = lambda: False

    def init(self, **_: object) -> None:
        self.connections += 1
        if self.away():
            raise ConnectionError("ray client connection timeout")
        self.connected = True

    def is_initialized(self) -> bool:
        return self.connected

    def shutdown(self) -> None:
        self.connected = False

    def nodes(self) -> list[dict[str, Any]]:
        self.looks += 1
        self.looked_again.release()
        if not self.answers():
            raise RuntimeError("the head is gone")
        if not self.connected:
            raise RuntimeError("Ray Client is not connected")
        return self.there

    @property
    def util(self) -> Any:
        self.started += 1
        raise RuntimeError("the node is gone")

    def request(self, cores: int) -> None:
        self.asked.append(cores)
        if not self.hears():
            raise RuntimeError("the head is gone")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setattr(ray_park, "_ray", lambda: ray)
    monkeypatch.setattr(ray_park, "_request", ray.request)
    monkeypatch.setattr(ray_park, "_LOOK_S", 0.001)
    return ray


class NoFront:
    """Nobody joins it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is nobody's business")


def look(ray: FakeRay, times: int) -> None:
    for _ in range(times):
        assert ray.looked_again.acquire(timeout=10), "the cluster is not looked at any more"


def look_until(ray: FakeRay, condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        look(ray, 1)
    raise AssertionError("it does not come to that")


def park() -> RayCluster:
    """One with a job that lives nowhere, which takes a core."""
    backlog = Backlog()
    backlog(JobAdded(0.0, "j"), [])
    return RayCluster("", NoFront(), lambda join: [], growing=Growing(backlog, Growth(after_s=5.0, most=2)))


def test_cores_are_asked_for_once_and_no_longer_wanted_at_the_end(ray: FakeRay) -> None:
    parked = park()
    look(ray, 10)
    parked.close()
    assert ray.asked == [1, 0]


def test_a_cluster_that_did_not_hear_is_asked_again(ray: FakeRay) -> None:
    ray.hears = lambda: len(ray.asked) > 3
    parked = park()
    look(ray, 20)
    parked.close()
    assert ray.asked == [1, 1, 1, 1, 0]


def test_a_cluster_that_does_not_answer_is_asked_for_nothing_until_it_does(ray: FakeRay) -> None:
    asked_by_then: list[int] = []

    def answers() -> bool:
        asked_by_then.append(len(ray.asked))
        return ray.looks > 5

    ray.answers = answers
    parked = park()
    look(ray, 20)
    parked.close()
    assert asked_by_then[:6] == [0] * 6
    assert ray.asked == [1, 0]


def test_who_asked_for_nothing_takes_nothing_back(ray: FakeRay) -> None:
    ray.answers = lambda: False
    parked = park()
    look(ray, 3)
    parked.close()
    assert ray.asked == []


def test_a_connection_that_ray_has_given_up_is_made_again_and_cores_are_asked_for_again(ray: FakeRay) -> None:
    """Not while there is nothing to connect to."""
    parked = park()
    look_until(ray, lambda: ray.asked == [1])
    ray.away = lambda: ray.connections < 4
    ray.connected = False
    look_until(ray, lambda: ray.connected and len(ray.asked) > 1)
    parked.close()
    assert ray.connections == 4
    assert ray.asked == [1, 1, 0]


def test_one_that_only_does_not_answer_is_kept(ray: FakeRay) -> None:
    parked = park()
    ray.answers = lambda: ray.looks > 5
    look(ray, 10)
    parked.close()
    assert ray.connections == 1


def test_a_node_on_which_no_agent_can_be_started_is_left_alone_for_a_while(
    ray: FakeRay, caplog: pytest.LogCaptureFixture
) -> None:
    ray.there = [node(CPU=2.0)]
    parked = park()
    look(ray, 20)
    parked.close()
    assert ray.started == 1
    assert "no agent can be started on ray-0123456789ab: the node is gone" in caplog.text


def test_a_node_that_takes_the_place_of_one_like_it_has_its_name(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hosts that are never back would only grow in number, for months."""
    started: list[tuple[str, NodeOffer]] = []

    def start(_: RayCluster, id: str, offer: NodeOffer) -> None:
        started.append((id, offer))
        raise RuntimeError("it is gone again")

    monkeypatch.setattr(RayCluster, "_start", start)
    monkeypatch.setattr(ray_park, "_AGAIN_S", 0.001)
    parked = park()
    nodes = (("one", 2, 900), ("two", 2, 910), ("three", 4, 900), ("four", 2, 890), ("five", 2, 899), ("six", 2, 9000))
    for id, cores, memory_mb in nodes:
        ray.there = [{**node(CPU=float(cores), memory=memory_mb * 2.0**20), "NodeID": id}]
        look_until(ray, lambda id=id: id in dict(started))
        ray.there = []
        look_until(ray, lambda: not parked._offers)
    parked.close()
    one, three, four, six = (
        NodeOffer(f"ray-{name}", cores, memory_mb)
        for name, cores, memory_mb in (("one", 2, 900), ("three", 4, 900), ("four", 2, 890), ("six", 2, 9000))
    )
    assert dict(started) == {"one": one, "two": one, "three": three, "four": four, "five": four, "six": six}
