"""The peak performance of a device: measured once for a device type, and kept in the records."""

from __future__ import annotations

import msgspec

from kintune.core.device import DeviceDescription, Peak
from kintune.records import Store
from kintune.wire.worker_client import WorkerProcess

__all__ = ["device_peak"]


def device_peak(device: WorkerProcess, about: DeviceDescription, store: Store | None, *, again: bool = False) -> Peak:
    """Return the device's peak from the records; if it is not there, or with `again`, measure and record it.

    Raises:
        EngineError: the device worker fails or dies.
    """
    kind = about.device_type
    known = None if store is None or again else store.devices.peak(kind.digest)
    if known is not None and known.narrow_gflops is not None:  # an earlier version measured less
        return known
    peak = msgspec.msgpack.decode(device.ask("peak"), type=Peak)
    if store is not None:
        with store.transaction():
            store.devices.add(kind)
            store.devices.note_peak(kind.digest, peak)
    return peak
