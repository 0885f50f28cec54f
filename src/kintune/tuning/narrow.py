"""What a device gains by computing with shorter numbers: measured once for a device type, and kept in the records."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kintune.core.device import DeviceDescription, NarrowSpeed
from kintune.errors import DamagedRecord
from kintune.records import Store
from kintune.wire.worker_client import WorkerProcess

__all__ = ["faster_precisions", "narrow_speeds"]

_FACT = "narrow"


def narrow_speeds(
    device: WorkerProcess, about: DeviceDescription, store: Store | None, *, again: bool = False
) -> tuple[NarrowSpeed, ...]:
    """Return the device's speeds from the records; if they are not there, or with `again`, measure and record them.

    Raises:
        EngineError: the device worker fails or dies.
    """
    kind = about.device_type
    known = None if store is None or again else _known(store, kind.digest)
    if known is not None:
        return known
    speeds = msgspec.msgpack.decode(device.ask("narrow"), type=tuple[NarrowSpeed, ...])
    if store is not None:
        with store.transaction():
            store.devices.add(kind)
            store.devices.note_fact(_FACT, kind.digest, msgspec.to_builtins(speeds))
    return speeds


def faster_precisions(speeds: Iterable[NarrowSpeed]) -> frozenset[str]:
    """The precisions in which the device was measured to be faster than in fp32: those that are worth offering."""
    return frozenset(speed.precision for speed in speeds if speed.is_faster)


def _known(store: Store, device_type: str) -> tuple[NarrowSpeed, ...] | None:
    try:
        fact = store.devices.fact(_FACT, device_type)
        return None if fact is None else msgspec.convert(fact.value, tuple[NarrowSpeed, ...])
    except (DamagedRecord, msgspec.ValidationError):
        return None
