"""What this machine can offer a front: cores to build on, devices to measure on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kintune.core.device import DeviceDescription, Peak
from kintune.measure.rpc.address import RpcAddress
from kintune.wire.child import ResourceLimits
from kintune.wire.worker_client import interview
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.fleet.messages import FLEET_VERSION, Join, OfferedDevice

__all__ = ["OfferedBoard", "OfferedDevices", "machine_identity", "offer_board", "offer_cores", "offer_devices"]

_DEVICE_WORKER = "kintune.workers.device_worker"


class OfferedDevices(msgspec.Struct, frozen=True):
    """Devices of one type: the cores of each, by name, and the number of its GPU where it is one."""

    type: str
    cores: dict[str, tuple[int, ...]]
    gpus: dict[str, int] = {}


class OfferedBoard(msgspec.Struct, frozen=True):
    """A board of some type, reached through the compiler's RPC server at an address; programs run in `threads`."""

    type: str
    address: RpcAddress
    threads: int


def offer_cores(name: str, cores: Sequence[int], memory_mb: int) -> Join:
    """Returns how a machine joins that builds on these cores, with `memory_mb` for each build."""
    return msgspec.structs.replace(
        _join(name), cores=len(cores), memory_mb=memory_mb, limits=ResourceLimits(memory_mb, cores=tuple(cores))
    )


def offer_devices(
    name: str, devices: OfferedDevices, target: str, tell: Callable[[str], None], *, urgent: bool
) -> Join:
    """Returns how a machine joins that measures on these devices; a worker measures each one's peak before.

    Raises:
        InputError: there is no such target.
        EngineError: a worker does not come up.
    """
    offered = []
    for device, cores in devices.cores.items():
        own = ("--gpu", str(devices.gpus[device])) if device in devices.gpus else ()
        arguments = ("--target", target, "--threads", str(len(cores)), *own, *(("--urgent",) if urgent else ()))
        offered.append(_offered(device, devices.type, arguments, ResourceLimits(cores=cores), tell))
    return msgspec.structs.replace(_join(name), devices=tuple(offered))


def offer_board(name: str, board: OfferedBoard, target: str, tell: Callable[[str], None]) -> Join:
    """Returns how this machine joins for a board without Python; raises as `offer_devices` does."""
    arguments = ("--rpc", str(board.address), "--target", target, "--threads", str(board.threads))
    device = ":".join(filter(None, ("rpc", str(board.address.port), board.address.key)))
    offered = _offered(device, board.type, arguments, ResourceLimits(), tell)
    return msgspec.structs.replace(_join(name), devices=(offered,))


def _offered(
    device: str, type_: str, arguments: tuple[str, ...], limits: ResourceLimits, tell: Callable[[str], None]
) -> OfferedDevice:
    """Returns a device with what its worker says of it and the peak that its worker has measured."""
    tell(f"measuring the properties and the peak of {device}")
    with interview(_DEVICE_WORKER, (*arguments, "--pulse"), limits=limits) as worker:
        about = msgspec.msgpack.decode(worker.about, type=DeviceDescription)
        peak = msgspec.msgpack.decode(worker.ask("peak"), type=Peak)
    tell(f"{device}: {about.device_type.model}, {peak.gflops:.3g} GFLOP/s, {peak.gbytes_per_s:.3g} GB/s")
    return OfferedDevice(device, type_, arguments, worker.about, peak, limits)


def machine_identity(root: Path = Path("/")) -> str:
    """Returns what tells this machine from others of the same name: a digest of the identifier made at installation.

    A machine without an identifier is known by its name and its processor.
    """
    for file in ("etc/machine-id", "var/lib/dbus/machine-id", "sys/class/dmi/id/product_uuid"):
        try:
            text = (root / file).read_text().strip()
        except OSError:
            continue
        if text:
            break
    else:
        text = f"{platform.node()} {platform.machine()}"
    return hashlib.sha256(f"kintune {text}".encode()).hexdigest()[:32]


def _join(name: str) -> Join:
    return Join(name, machine_identity(), FLEET_VERSION, WIRE_VERSION)
