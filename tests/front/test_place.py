from __future__ import annotations

import pytest

from kintune.errors import TargetError
from kintune.front.place import Place, choose_place
from kintune.scheduler.resources import Device, Host


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.front.place.physical_cores", lambda: (0, 2, 4, 6))
    monkeypatch.setattr("kintune.front.place.choose_cores", lambda count: (0, 2, 4, 6)[: count or 4])


def test_the_device_is_the_host_unless_told_otherwise() -> None:
    place = choose_place("cpu", None)
    assert place == Place(((0, 2, 4, 6),), (0, 2, 4, 6))
    assert (place.shared, place.threads, place.names) == (True, 4, ("cpu",))
    host, device = place.resources()
    assert isinstance(host, Host)
    assert host.cores == 4
    assert device == Device("cpu", "cpu", host="local", on_host_cores=True)
    assert choose_place("cpu", 2).cores == (0, 2)


@pytest.mark.parametrize(
    ("text", "devices", "host"),
    [
        ("cpu:6", ((6,),), (0, 2, 4)),
        ("cpu:4,6", ((4, 6),), (0, 2)),
        ("cpu:4+cpu:6", ((4,), (6,)), (0, 2)),
    ],
)
def test_devices_on_cores_of_their_own(text: str, devices: tuple[tuple[int, ...], ...], host: tuple[int, ...]) -> None:
    place = choose_place(text, None)
    assert (place.devices, place.host, place.shared) == (devices, host, False)
    assert [resource.id for resource in place.resources()] == ["local", *place.names]
    assert all(r.type == "cpu" and not r.on_host_cores for r in place.resources() if isinstance(r, Device))
    commands = place.commands("native")
    for name, cores in zip(place.names, devices, strict=True):
        assert commands[f"device@{name}"].limits.cores == cores
        assert commands[f"device@{name}"].environment["TVM_NUM_THREADS"] == str(len(cores))
    assert commands["build"].limits.cores == host


def test_where_the_device_is_the_host_nobody_is_pinned() -> None:
    assert choose_place("cpu", None).commands("native")["device@cpu"].limits.cores == ()


@pytest.mark.parametrize(
    ("text", "threads", "said"),
    [
        ("gpu", None, "device 'gpu': this machine has 'cpu'"),
        ("cpu:", None, "device 'cpu:': this machine has 'cpu'"),
        ("cpu:6+", None, "device '': this machine has 'cpu'"),
        ("cpu:9", None, "there is no core 9; this process may use 0, 2, 4, 6"),
        ("cpu:6+cpu:6", None, "core 6 stands twice"),
        ("cpu:6+cpu:2,4", None, "unlike numbers of cores"),
        ("cpu:0,2,4,6", None, "no core is left to build on"),
        ("cpu:4,6", 1, "has 2 cores, and threads=1"),
    ],
)
def test_devices_that_cannot_be_are_refused(text: str, threads: int | None, said: str) -> None:
    with pytest.raises(TargetError) as raised:
        choose_place(text, threads)
    assert said in str(raised.value)
