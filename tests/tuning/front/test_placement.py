from __future__ import annotations

import os

import msgspec
import pytest

from kintune.errors import OrderError, TargetError
from kintune.hardware.gpus import Gpu
from kintune.scheduler.resources import Device, Host
from kintune.tuning.front.placement import CorePlacement, choose_placement, holding, off_devices


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.tuning.front.placement.physical_cores", lambda: (0, 2, 4, 6))
    monkeypatch.setattr("kintune.tuning.front.placement.choose_cores", lambda count: (0, 2, 4, 6)[: count or 4])
    monkeypatch.setattr("kintune.tuning.front.placement.list_gpus", lambda: ())
    monkeypatch.setattr("kintune.tuning.front.placement.find_nvcc", lambda: "nvcc")


def test_the_device_is_the_host_unless_told_otherwise() -> None:
    place = choose_placement("cpu", None)
    assert place == CorePlacement(((0, 2, 4, 6),), (0, 2, 4, 6))
    assert (place.shared, place.threads, place.names) == (True, 4, ("cpu",))
    host, device = place.resources()
    assert isinstance(host, Host)
    assert host.cores == 4
    assert device == Device("cpu", "cpu", host="local", on_host_cores=True)
    assert choose_placement("cpu", 2).cores == (0, 2)


@pytest.mark.parametrize(
    ("text", "devices", "host"),
    [
        ("cpu:6", ((6,),), (0, 2, 4)),
        ("cpu:4,6", ((4, 6),), (0, 2)),
        ("cpu:4+cpu:6", ((4,), (6,)), (0, 2)),
    ],
)
def test_devices_on_cores_of_their_own(text: str, devices: tuple[tuple[int, ...], ...], host: tuple[int, ...]) -> None:
    place = choose_placement(text, None)
    assert (place.devices, place.host, place.shared) == (devices, host, False)
    assert [resource.id for resource in place.resources()] == ["local", *place.names]
    assert all(r.type == "cpu" and not r.on_host_cores for r in place.resources() if isinstance(r, Device))
    commands = place.commands("native")
    for name, cores in zip(place.names, devices, strict=True):
        assert commands[f"device@{name}"].limits.cores == cores
        assert commands[f"device@{name}"].environment["TVM_NUM_THREADS"] == str(len(cores))
    assert commands["build"].limits.cores == host


def test_where_the_device_is_the_host_nobody_is_pinned() -> None:
    assert choose_placement("cpu", None).commands("native")["device@cpu"].limits.cores == ()


@pytest.mark.parametrize(
    ("text", "threads", "said"),
    [
        ("cuda", None, "there is no GPU 0; `nvidia-smi` knows none at all"),
        ("cuda:x", None, "device 'cuda:x': this machine has 'cpu'"),
        (f"cuda:{'9' * 5000}", None, "99': this machine has 'cpu'"),
        ("gpu", None, "device 'gpu': this machine has 'cpu'"),
        ("cpu:", None, "device 'cpu:': this machine has 'cpu'"),
        ("cpu:6+", None, "device '': this machine has 'cpu'"),
        ("cpu:9", None, "there is no core 9; this process may use 0, 2, 4, 6"),
        ("cpu:6+cpu:6", None, "core 6 is given twice"),
        ("cpu:6+cpu:2,4", None, "different numbers of cores"),
        ("cpu:0,2,4,6", None, "no core is left to build on"),
        ("cpu:4,6", 1, "has 2 cores, and threads=1"),
        ("cpu:3-2", None, "device 'cpu:3-2': name the lower core first, 'cpu:2-3'"),
        ("cpu:6,4-2", None, "name the lower core first"),
        ("cpu:0-99999999999", None, "device 'cpu:0-99999999999': no machine has such a core"),
        ("cpu:65536", None, "no machine has such a core"),
        (f"cpu:{'9' * 5000}", None, "no machine has such a core"),
    ],
)
def test_devices_that_cannot_be_are_refused(text: str, threads: int | None, said: str) -> None:
    with pytest.raises(TargetError) as raised:
        choose_placement(text, threads)
    assert said in str(raised.value)


def gpus(*architectures: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(i, f"GPU {each}", each, 80_000, "580") for i, each in enumerate(architectures))


def test_gpus_have_a_core_each_to_start_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.tuning.front.placement.list_gpus", lambda: gpus("sm_90", "sm_90"))
    assert choose_placement("cuda", None) == choose_placement("cuda:0", 1)
    place = choose_placement("cuda:1+cuda:0", None)
    assert (place.devices, place.host, place.names) == (((4,), (6,)), (0, 2), ("cuda:1", "cuda:0"))
    assert choose_placement("cuda:1", None).devices == ((4,),)  # whatever is done with the other one meanwhile
    assert (place.shared, place.threads, place.type) == (False, 1, "cuda")
    assert all(r.type == "cuda" and r.host is None for r in place.resources() if isinstance(r, Device))
    assert (place.site().cpu, place.site().device, place.site().count) == ("GPU sm_90", "cuda", 2)
    commands = place.commands("native")
    assert commands["device@cuda:1"].argv[-2:] == ("--gpu", "1")
    assert commands["device@cuda:1"].limits.cores == (4,)
    assert commands["device@cuda:1"].limits.address_space_mb is None  # which a driver would exceed at once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuda:7", "there is no GPU 7; `nvidia-smi` knows 0, 1, 2, 3, 4, 5"),
        ("cuda:0+cuda", "GPU 0 is given twice"),
        ("cuda:0+cuda:5", "the GPUs differ"),
        ("cuda:0+cuda:1+cuda:2+cuda:3", "no core is left to build on"),
        ("cuda:0+cuda:4", "no core is left to start kernels on GPU 4"),
        ("cuda:0+cpu:1", "this machine has 'cpu'"),
    ],
)
def test_gpus_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.setattr("kintune.tuning.front.placement.list_gpus", lambda: gpus(*["sm_90"] * 5, "sm_86"))
    with pytest.raises(TargetError) as raised:
        choose_placement(text, None)
    assert said in str(raised.value)


def test_a_gpu_for_one_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lonely = msgspec.structs.replace(gpus("sm_90")[0], shared=False)
    monkeypatch.setattr("kintune.tuning.front.placement.list_gpus", lambda: (lonely,))
    with pytest.raises(TargetError, match=r"GPU 0 takes one process at a time.* nvidia-smi -i 0 -c DEFAULT"):
        choose_placement("cuda", None)


def test_a_gpu_is_held_like_a_core() -> None:
    with holding((1,), (0,)), pytest.raises(OrderError, match="holds the lock on 'gpu-0' already"):
        holding((), (0,)).__enter__()
    with holding((1,), (0,)):
        pass


def test_only_devices_with_cores_of_their_own_are_kept_off() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    for place, inside in (
        (CorePlacement(((core,),), (core,)), before),
        (CorePlacement(((core + 1,),), (core,)), {core}),
    ):
        with off_devices(place):
            assert os.sched_getaffinity(0) == inside
        assert os.sched_getaffinity(0) == before
