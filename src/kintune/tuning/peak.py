"""What a device reaches at its best: measured once for a device type, and kept in the records."""

from __future__ import annotations

import msgspec

from kintune.core.device import DeviceDescription, Peak
from kintune.records import Store
from kintune.wire.worker_client import WorkerProcess

__all__ = ["device_peak"]


def device_peak(device: WorkerProcess, about: DeviceDescription, store: Store | None, *, again: bool = False) -> Peak:
    """The device's peak: from the records, unless it is to be measured `again`, or measured now and noted there.

    Raises:
        EngineError: the device worker fails or dies.
    """
    kind = about.device_type
    known = None if store is None or again else store.devices.peak(kind.digest)
    if known is not None and known.read_gbytes_per_s:  # else an earlier version measured it, and less of it
        return known
    peak = msgspec.msgpack.decode(device.ask("peak"), type=Peak)
    if store is not None:
        with store.transaction():
            store.devices.add(kind)
            store.devices.note_peak(kind.digest, peak)
    return peak
