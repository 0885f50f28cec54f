"""What this machine reaches at its best, as the doctor tells it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kintune.core.device import DeviceDescription, Peak
from kintune.errors import KintuneError
from kintune.hardware.check import Check, Verdict
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.records import Store
from kintune.terminal.quantities import count
from kintune.tuning.peak import device_peak
from kintune.wire.worker_client import interview

__all__ = ["check_peak", "described"]

_NAME = "measured peak"
_DEVICE_WORKER = "kintune.workers.device_worker"


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
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
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
