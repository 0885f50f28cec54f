"""Webhooks: addresses to be called when a job is over, and the outcome of each call.

A call is recorded in the transaction that ends the job, so it is neither lost nor made up.  The web process makes it,
and tries again with longer and longer waits.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import func, insert, select, update

from kintune.records.database import Database
from kintune.service.job_repository import Job
from kintune.service.schema import jobs, webhooks
from kintune.service.webhook_outcome import WebhookOutcome

__all__ = ["Webhook", "Webhooks", "choose_calls", "public_address", "why_blocked"]
_AT_ONCE, _AT_ONCE_OF_OWNER_AND_HOST = 20, 2
_FOR_NOW = (socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_FAIL)
_WAITS_S = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0)


class Webhook(msgspec.Struct, frozen=True):
    """One address to be called about one job of an `owner`."""

    id: int
    job: str
    owner: int
    url: str
    attempts: int

    @property
    def host(self) -> str:
        """The host that is called."""
        return urlsplit(self.url).hostname or ""


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

    def due(self, now: float, most: int = 200) -> list[Webhook]:
        """Returns the calls to be made at `now` (seconds since 1970), longest due first, and `most` of one owner."""
        place = func.row_number().over(partition_by=jobs.c.owner, order_by=(webhooks.c.due, webhooks.c.id))
        columns = (webhooks.c.id, webhooks.c.job, jobs.c.owner, webhooks.c.url, webhooks.c.attempts, webhooks.c.due)
        joined = webhooks.join(jobs, webhooks.c.job == jobs.c.id)
        ranked = select(*columns, place.label("place")).select_from(joined).where(webhooks.c.due <= now).subquery()
        query = select(ranked).where(ranked.c.place <= most).order_by(ranked.c.due, ranked.c.id)
        with self._database.snapshot() as connection:
            return [Webhook(row.id, row.job, row.owner, row.url, row.attempts) for row in connection.execute(query)]

    def of_job(self, job: str) -> list[WebhookOutcome]:
        """Returns what became of the calls about a job; nothing before it is over."""
        columns = (webhooks.c.url, webhooks.c.attempts, webhooks.c.outcome, webhooks.c.due)
        query = select(*columns).where(webhooks.c.job == job).order_by(webhooks.c.id)
        with self._database.snapshot() as connection:
            return [WebhookOutcome(*row) for row in connection.execute(query)]

    def next_due(self, now: float) -> float | None:
        """Returns when the next call after `now` is to be made, in seconds since 1970; None if there is none."""
        with self._database.snapshot() as connection:
            found: float | None = connection.scalar(select(func.min(webhooks.c.due)).where(webhooks.c.due > now))
            return found

    def made(self, call: Webhook, outcome: str, now: float, *, succeeded: bool) -> None:
        """Records a call; one that has not `succeeded` is tried again, up to five times more."""
        wait = None if succeeded or call.attempts >= len(_WAITS_S) else _WAITS_S[call.attempts]
        values = {"attempts": call.attempts + 1, "due": None if wait is None else now + wait, "outcome": outcome[:200]}
        with self._database.transaction() as connection:
            connection.execute(update(webhooks).where(webhooks.c.id == call.id).values(**values))


def choose_calls(due: Iterable[Webhook], under_way: Iterable[Webhook]) -> list[Webhook]:
    """Returns the calls to begin now, of those that are `due`: 20 at once, and two of one owner to one host.

    So a receiver that is slow keeps few others waiting.  Those `under_way` are not begun again.
    """
    begun = {call.id: call for call in under_way}
    taken = Counter((call.owner, call.host) for call in begun.values())
    chosen = []
    for call in due:
        if len(begun) >= _AT_ONCE:
            break
        if call.id not in begun and taken[call.owner, call.host] < _AT_ONCE_OF_OWNER_AND_HOST:
            taken[call.owner, call.host] += 1
            begun[call.id] = call
            chosen.append(call)
    return chosen


def why_blocked(url: str) -> str | None:
    """Returns why a webhook can never be called; None if it can, or if that cannot be found out now."""
    host = urlsplit(url).hostname or ""
    try:
        return None if public_address(url, strict=True) else f"{host} is not on the public internet"
    except socket.gaierror as error:
        return None if error.errno in _FOR_NOW else f"the name {host} is not known"
    except (OSError, ValueError):
        return f"{host} is no name of a host"


def public_address(url: str, *, strict: bool = False) -> str | None:
    """Returns the numeric address of a URL's name; None unless all its addresses are on the public internet.

    Otherwise users could make the service call hosts that only it can reach.  Callers must use this address and not
    look the name up again, which might then give another.  A name that cannot be looked up is an error if `strict`.

    Raises:
        OSError: `strict`, and the name does not resolve.
        ValueError: `strict`, and it is no valid name.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname or "", parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a name that does not resolve, or is no valid name
        if strict:
            raise
        return None
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
    if not addresses or not all(address.is_global and not address.is_multicast for address in addresses):
        return None
    return str(addresses[0])
