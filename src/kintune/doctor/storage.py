"""Whether the records can be used."""

from __future__ import annotations

from pathlib import Path

from kintune.errors import RecordsError, StorageError
from kintune.hardware.check import Check, Verdict
from kintune.records import Store

__all__ = ["check_records"]

_NAME = "records"


def check_records(location: str | None) -> list[Check]:
    """Open the records at `location` (the default place when None), without creating any."""
    where = location or Store.default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        return [Check(_NAME, Verdict.NOTE, f"{where} does not exist yet; it is made once there is something to keep")]
    try:
        with Store.open(where, create=False) as store:
            counts = store.counts()
            finding = f"{store.where}: {counts.runs} runs, {counts.measurements} measurements"
            notices = [Check(_NAME, Verdict.NOTE, store.notice)] if store.notice else []
            return [Check(_NAME, Verdict.GOOD, finding), *notices]
    except (RecordsError, StorageError) as error:
        return [Check(_NAME, Verdict.PROBLEM, str(error), "choose another with --records, or move this one away")]
