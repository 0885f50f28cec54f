"""Whether the records can be used, and what they already tell about this machine."""

from __future__ import annotations

from kintune.doctor.check import Check, Verdict
from kintune.errors import RecordsError

__all__ = ["check_records"]

_NAME = "records"


def check_records(location: str | None) -> list[Check]:
    """Open the records at `location` (the default place when None), without creating any."""
    from kintune.records import Store

    where = location or Store.default_location()
    if "://" not in where and not _exists(where):
        return [Check(_NAME, Verdict.NOTE, f"{where} does not exist yet; the first run creates it")]
    try:
        with Store.open(where, create=False) as store:
            counts = store.counts()
            finding = f"{store.where}: {counts.runs} runs, {counts.measurements} measurements"
            checks = [Check(_NAME, Verdict.GOOD, finding)]
            if store.notice:
                checks.append(Check(_NAME, Verdict.NOTE, store.notice))
    except RecordsError as error:
        return [Check(_NAME, Verdict.PROBLEM, str(error), "choose another with --records, or move this one away")]
    return checks


def _exists(where: str) -> bool:
    from pathlib import Path

    return Path(where).expanduser().exists()
