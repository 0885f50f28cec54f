"""What devices reach at their best, as the records keep it."""

from __future__ import annotations

import msgspec

from kintune.measure.about import Peak
from kintune.measure.protocol import DeviceType
from kintune.records import Store

__all__ = ["known_peak", "note_peak"]

_FACT = "peak"


def known_peak(store: Store, device_type: DeviceType) -> Peak | None:
    """The peak that was measured for this device type, if any was."""
    fact = store.devices.fact(_FACT, device_type.digest)
    return None if fact is None else msgspec.convert(fact.value, Peak)


def note_peak(store: Store, device_type: DeviceType, peak: Peak) -> None:
    """Keep the peak, in place of an earlier one."""
    with store.transaction():
        store.devices.add(device_type)
        store.devices.note_fact(_FACT, device_type.digest, msgspec.to_builtins(peak))
