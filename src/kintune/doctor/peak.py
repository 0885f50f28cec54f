"""What this machine reaches at its best: measured once for a device type, and kept in the records."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kintune.doctor.check import Check, Verdict
from kintune.engine.devices import cores_lock
from kintune.errors import KintuneError
from kintune.measure.about import DeviceAbout, Peak
from kintune.measure.cores import choose_cores
from kintune.records import Store
from kintune.terminal.quantities import count
from kintune.wire.interview import Interview, interview

__all__ = ["check_peak", "described", "device_peak"]

_NAME = "measured peak"
_DEVICE_WORKER = "kintune.measure.device_worker"


def device_peak(device: Interview, about: DeviceAbout, store: Store | None, *, again: bool = False) -> Peak:
    """The device's peak: from the records, unless it is to be measured `again`, or measured now and noted there.

    Raises what an interview does.
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


def check_peak(location: str | None, *, again: bool = False, on_wait: Callable[[str], None] | None = None) -> Check:
    """What this machine reaches with all its cores, and the records at `location` keep from now on.

    Waits for whoever times programs on the cores; `on_wait` is told who.
    """
    cores = choose_cores(0)
    try:
        with (
            Store.open(location) as store,
            cores_lock(cores, on_wait),
            interview(_DEVICE_WORKER, ("--target", "native", "--threads", str(len(cores)))) as device,
        ):
            about = msgspec.msgpack.decode(device.about, type=DeviceAbout)
            peak = device_peak(device, about, store, again=again)
    except KintuneError as error:
        return Check(_NAME, Verdict.PROBLEM, str(error), "mend what it says; tuning needs the same worker")
    return Check(_NAME, Verdict.GOOD, described(peak))


def described(peak: Peak) -> str:
    """One line."""
    reading = f" and reading {count(peak.read_gbytes_per_s * 1e9, 'B')}" if peak.read_gbytes_per_s else ""
    return (
        f"{count(peak.gflops * 1e9, 'FLOP')} a second with {peak.threads} threads, "
        f"streaming {count(peak.gbytes_per_s * 1e9, 'B')}{reading} a second"
    )
