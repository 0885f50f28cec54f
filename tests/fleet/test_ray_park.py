"""What nodes of a cluster offer; that they do it is tested with a real cluster, in `test_ray_cluster.py`."""

from __future__ import annotations

from typing import Any

import pytest

from kintune.errors import InputError
from kintune.fleet.offer import Devices
from kintune.fleet.ray_node import NodeOffer
from kintune.fleet.ray_park import offer_of, ray_address


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
    assert devices == [Devices("a", {"cpu:7": (7,)}), Devices("b", {"cpu:8": (8,), "cpu:9": (9,)})]
    with pytest.raises(InputError, match="n is to offer 5 cores, and its processes may use 4"):
        NodeOffer("n", 2, 0, {"a": 3}).place((0, 1, 2, 3))
