"""What a device worker says of its device; free of TVM, so that the front can read it."""

from __future__ import annotations

import msgspec

from kintune.doctor.machine import Machine
from kintune.measure.protocol import DeviceType, Protocol

__all__ = ["DeviceAbout", "Peak"]


class DeviceAbout(msgspec.Struct, frozen=True):
    """`Hello.about` of a device worker: what it measures, how, on which machine, with programs of which compiler.

    `protocol` is the one for a search: those that confirm differ in repeats only.  `cores` are the processors that its
    threads are pinned to, one on each physical core.
    """

    device_type: DeviceType
    protocol: Protocol
    cores: tuple[int, ...]
    machine: Machine
    compiler: str

    def crowded(self) -> DeviceAbout:
        """The same device when measurements may share it: another type, since its times are true for nothing else."""
        kind = self.device_type
        apart = msgspec.structs.replace(kind, protocol=f"{kind.protocol}-crowded")
        return msgspec.structs.replace(self, device_type=apart)


class Peak(msgspec.Struct, frozen=True):
    """The most a device does with its threads: fp32 GFLOP/s in registers, GB/s (1e9 bytes) streamed through memory."""

    gflops: float
    gbytes_per_s: float
    threads: int
