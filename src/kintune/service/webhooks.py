"""Webhooks: addresses to be called when a job is over, and the outcome of each call.

A call is recorded in the transaction that ends the job, so it is neither lost nor made up.  The web process makes it,
and tries again with longer and longer waits.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import func, insert, select, update

from kintune.records.database import Database
from kintune.service.job_repository import Job
from kintune.service.schema import webhooks

__all__ = ["Webhook", "Webhooks", "public_address"]
_WAITS_S = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0)


class Webhook(msgspec.Struct, frozen=True):
    """One address to be called about one job."""

    id: int
    job: str
    url: str
    attempts: int


class Webhooks:
    """Calls that are due, and those that were made."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, job: Job, now: float) -> None:
        """Records the call for a job that is over, inside the transaction that ends it."""
        if job.wanted.webhook is None:
            return
        row = {"job": job.id, "url": job.wanted.webhook, "attempts": 0, "due": now, "outcome": ""}
        with self._database.transaction() as connection:
            connection.execute(insert(webhooks).values(**row))

    def due(self, now: float, limit: int = 20) -> list[Webhook]:
        """Returns the calls to be made at `now` (seconds since 1970), longest due first."""
        query = select(webhooks).where(webhooks.c.due <= now).order_by(webhooks.c.due).limit(limit)
        with self._database.snapshot() as connection:
            return [Webhook(row.id, row.job, row.url, row.attempts) for row in connection.execute(query)]

    def next_due(self) -> float | None:
        """Returns when the next call is to be made, in seconds since 1970; None if there is none."""
        with self._database.snapshot() as connection:
            found: float | None = connection.scalar(select(func.min(webhooks.c.due)))
            return found

    def made(self, call: Webhook, outcome: str, now: float, *, succeeded: bool) -> None:
        """Records a call; one that has not `succeeded` is tried again, up to five times more."""
        wait = None if succeeded or call.attempts >= len(_WAITS_S) else _WAITS_S[call.attempts]
        values = {"attempts": call.attempts + 1, "due": None if wait is None else now + wait, "outcome": outcome[:200]}
        with self._database.transaction() as connection:
            connection.execute(update(webhooks).where(webhooks.c.id == call.id).values(**values))


def public_address(url: str) -> str | None:
    """Returns the numeric address of a URL's name; None unless all its addresses are on the public internet.

    Otherwise users could make the service call hosts that only it can reach.  Callers must use this address and not
    look the name up again, which might then give another.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname or "", parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a name that nobody has, or that is none
        return None
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
    if not addresses or not all(address.is_global and not address.is_multicast for address in addresses):
        return None
    return str(addresses[0])
