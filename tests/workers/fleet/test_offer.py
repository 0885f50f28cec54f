from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.device import DeviceDescription
from kintune.wire.child import ResourceLimits
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.fleet.messages import FLEET_VERSION
from kintune.workers.fleet.offer import OfferedDevices, machine_identity, offer_cores, offer_devices


def test_cores_are_offered_with_what_builds_may_take() -> None:
    join = offer_cores("host", (2, 3, 5), 4000)
    assert (join.name, join.cores, join.memory_mb) == ("host", 3, 4000)
    assert join.limits == ResourceLimits(4000, cores=(2, 3, 5))
    assert (join.fleet_version, join.wire_version, join.devices) == (FLEET_VERSION, WIRE_VERSION, ())


def test_an_identity_is_the_systems_whatever_the_machine_is_called(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef\n")
    identity = machine_identity(tmp_path)
    assert len(identity) == 32
    assert "0123456789" not in identity  # what the system is called is nobody's business
    (tmp_path / "etc/machine-id").write_text("")
    (tmp_path / "var/lib/dbus").mkdir(parents=True)
    (tmp_path / "var/lib/dbus/machine-id").write_text("another")
    assert machine_identity(tmp_path) != identity
    (tmp_path / "var/lib/dbus/machine-id").unlink()
    assert machine_identity(tmp_path) == machine_identity(tmp_path)


@pytest.mark.tvm
def test_a_device_is_asked_what_it_is_and_reaches() -> None:
    told: list[str] = []
    devices = OfferedDevices("these", {"cpu:0": (0,)})
    join = offer_devices("board", devices, "native", told.append, urgent=True)
    (device,) = join.devices
    about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
    assert (device.name, device.type, device.arguments) == (
        "cpu:0",
        "these",
        ("--target", "native", "--threads", "1", "--urgent"),
    )
    assert device.limits.cores == (0,)
    assert about.device_type.threads == 1
    assert 1 < about.pulse_us < 1e6
    assert device.peak is not None
    assert device.peak.gflops > 1
    assert "GFLOP/s" in told[-1]
