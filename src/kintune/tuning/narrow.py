"""How much faster a device computes in narrower precisions: measured once for a device type, kept in the records."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kintune.core.device import BY_AMX, DeviceDescription, NarrowSpeed
from kintune.core.quantisation import INT8
from kintune.errors import DamagedRecord
from kintune.records import Store
from kintune.wire.worker_client import WorkerProcess

__all__ = ["avoided_extensions", "known_speeds", "narrow_speeds"]

_FACT = "narrow_2"  # with int8 among them
_FOR_BYTES = "amxint8"


def narrow_speeds(
    device: WorkerProcess, about: DeviceDescription, store: Store | None, *, again: bool = False
) -> tuple[NarrowSpeed, ...]:
    """Return the device's speeds from the records; if they are not there, or with `again`, measure and record them.

    Raises:
        EngineError: the device worker fails or dies.
    """
    kind = about.device_type
    known = None if store is None or again else known_speeds(store, kind.digest)
    if known is not None:
        return known
    speeds = msgspec.msgpack.decode(device.ask("narrow"), type=tuple[NarrowSpeed, ...])
    if store is not None:
        with store.transaction():
            store.devices.add(kind)
            store.devices.note_fact(_FACT, kind.digest, msgspec.to_builtins(speeds))
    return speeds


def avoided_extensions(speeds: Iterable[NarrowSpeed]) -> tuple[str, ...]:
    """Returns the extensions that no program is to use, since it would gain nothing by them.

    At present that is AMX for bytes, where it does not work, or is no faster than vectors of bytes.
    """
    of_bytes = [speed for speed in speeds if speed.precision == INT8]
    tiles = [speed for speed in of_bytes if speed.instructions == BY_AMX]
    others = max((speed.times_fp32 for speed in of_bytes if speed.instructions != BY_AMX), default=0.0)
    is_slow = any(speed.problem or speed.times_fp32 <= others for speed in tiles)
    return (_FOR_BYTES,) if is_slow else ()


def known_speeds(store: Store, device_type: str) -> tuple[NarrowSpeed, ...] | None:
    """What the records know of a device type (digest); None where it was not measured, or the entry is damaged."""
    try:
        fact = store.devices.fact(_FACT, device_type)
        return None if fact is None else msgspec.convert(fact.value, tuple[NarrowSpeed, ...])
    except (DamagedRecord, msgspec.ValidationError):
        return None
