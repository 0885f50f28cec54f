"""The events of runs: each run's whole history, in sequence, from which its job can be built again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, insert, select

from kintune.core.messages import Committed, ItemStatus
from kintune.errors import RecordsError
from kintune.records.blobs import pack, unpack
from kintune.records.database import Database
from kintune.records.integrity import Damage, row_id, sealed, verified
from kintune.records.schema import events

__all__ = ["Events"]


class Events:
    """Events by run, numbered from 0 without a gap.  None is ever changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, run_id: str, *added: Committed) -> None:
        """Add the next events of a run, all or none; raises `RecordsError` when a `seq` is not the next number."""
        with self._database.transaction() as connection:
            for expected, event in enumerate(added, self.count(run_id)):
                if event.seq != expected:
                    raise RecordsError(
                        f"records: event {event.seq} of run {run_id} cannot be added: {expected} is the next"
                    )
            if added:
                connection.execute(insert(events), [_row(run_id, event) for event in added])

    def count(self, run_id: str) -> int:
        """How many events the run has; the number of its next one."""
        with self._database.snapshot() as connection:
            last = connection.scalar(select(func.max(events.c.seq)).where(events.c.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def history(self, run_id: str) -> tuple[Committed, ...]:
        """All events of a run, in sequence; raises `DamagedRecord` when one changed or is missing.

        There is no way to leave one out: what follows was decided knowing it.
        """
        found: list[Committed] = []
        query = select(events).where(events.c.run_id == run_id).order_by(events.c.seq)
        with self._database.snapshot() as connection:
            for row in verified(events, connection.execute(query)):
                if row["seq"] != len(found):
                    raise Damage(events.name, f"{run_id}/{len(found)}", "it is missing").error()
                found.append(_event(row))
        return tuple(found)


def _row(run_id: str, event: Committed) -> dict[str, Any]:
    codec, payload = pack(event.payload)
    return sealed(
        events,
        run_id=run_id,
        seq=event.seq,
        at=event.at,
        stage=event.stage,
        attempt=event.attempt,
        kind=event.kind,
        idx=event.index,
        status=event.status.value,
        codec=codec.value,
        payload=payload,
        cause=event.cause,
        seconds=event.seconds,
    )


def _event(row: Mapping[str, Any]) -> Committed:
    try:
        payload = unpack(row["codec"], row["payload"])
    except ValueError as error:
        raise Damage(events.name, row_id(events, row), f"its payload cannot be read: {error}").error() from error
    return Committed(
        seq=row["seq"],
        at=row["at"],
        stage=row["stage"],
        attempt=row["attempt"],
        kind=row["kind"],
        index=row["idx"],
        status=ItemStatus(row["status"]),
        payload=payload,
        cause=row["cause"],
        seconds=row["seconds"],
    )
