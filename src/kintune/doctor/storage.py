"""Whether the records can be used, and what they already tell about this machine."""

from __future__ import annotations

from pathlib import Path

from kintune.doctor.check import Check, Verdict
from kintune.doctor.peak import known_peak
from kintune.errors import RecordsError
from kintune.records import Store
from kintune.terminal.quantities import count

__all__ = ["check_records"]

_NAME = "records"


def check_records(location: str | None, cpu: str) -> list[Check]:
    """Open the records at `location` (the default place when None), without creating any.

    Peaks are told of device types whose model is `cpu`.
    """
    where = location or Store.default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        return [Check(_NAME, Verdict.NOTE, f"{where} does not exist yet; the first run creates it")]
    try:
        with Store.open(where, create=False) as store:
            counts = store.counts()
            finding = f"{store.where}: {counts.runs} runs, {counts.measurements} measurements"
            notices = [Check(_NAME, Verdict.NOTE, store.notice)] if store.notice else []
            return [Check(_NAME, Verdict.GOOD, finding), *notices, *_peaks(store, cpu)]
    except RecordsError as error:
        return [Check(_NAME, Verdict.PROBLEM, str(error), "choose another with --records, or move this one away")]


def _peaks(store: Store, cpu: str) -> list[Check]:
    checks = []
    for device_type in store.devices.list(on_damage=lambda _: None):
        peak = known_peak(store, device_type) if device_type.model == cpu else None
        if peak is not None:
            arithmetic, memory = count(peak.gflops * 1e9, "FLOP"), count(peak.gbytes_per_s * 1e9, "B")
            finding = f"{arithmetic} and {memory} a second with {peak.threads} threads"
            checks.append(Check("measured peak", Verdict.GOOD, finding))
    return checks or [Check("measured peak", Verdict.NOTE, "not measured yet; 'kintune estimate' does it")]
