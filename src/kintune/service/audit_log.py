"""The audit log: who did what, when, from where.  Rows are only ever added."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy import insert, select

from kintune.records.database import Database
from kintune.service.access import Visitor
from kintune.service.database import plain
from kintune.service.schema import audit

__all__ = ["AuditEntry", "AuditLog"]


class AuditEntry(msgspec.Struct, frozen=True):
    """One line of the log; `user` and `token` are None for what the operator did on the machine itself."""

    id: int
    at: float
    user: int | None
    token: int | None
    address: str
    action: str
    subject: str
    details: str


class AuditLog:
    """Adds each line in the transaction of the change that it reports, so that both are kept or neither."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(
        self,
        now: float,
        action: str,
        subject: str,
        visitor: Visitor | None = None,
        address: str = "",
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Add a line, inside the transaction that this thread has open, if there is one."""
        row = {
            "at": now,
            "user": visitor.user if visitor else None,
            "token": visitor.token if visitor else None,
            "address": address[:64],
            "action": action,
            "subject": subject[:128],
            "details": msgspec.json.encode(dict(details or {})).decode(),
        }
        with self._database.transaction() as opened:
            opened.execute(insert(audit).values(**row))

    def read(self, before: int | None = None, limit: int = 100) -> list[AuditEntry]:
        """The latest lines, newest first; those before the line `before` to read on."""
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.id < before)
        with self._database.snapshot() as connection:
            return [msgspec.convert(plain(row), AuditEntry) for row in connection.execute(query)]
