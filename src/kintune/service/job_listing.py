"""Lists of jobs as people look for them: searched, filtered, sorted and cut into pages, all of it in the database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Select, func, or_, select

from kintune.core.report import FastestBaseline
from kintune.records.database import Database
from kintune.service.access import Visitor
from kintune.service.database import plain
from kintune.service.job_repository import Job, baseline_of, job_of_row
from kintune.service.job_status import ENDS, JobStatus
from kintune.service.schema import jobs, models, steps, users

__all__ = ["SORTED_BY", "BestResult", "JobFilter", "JobListing", "ListedJob", "PastJobs"]

_SORTS: dict[str, ColumnElement[Any]] = {
    "created": jobs.c.created,
    "model": func.lower(models.c.name),
    "device": jobs.c.device,
    "state": jobs.c.state,
    "latency": jobs.c.latency_ms,
    "gain": func.coalesce(jobs.c.ratio, jobs.c.latency_ms / func.nullif(jobs.c.baseline_ms, 0.0)),
    "who": users.c.name,
}
SORTED_BY = tuple(_SORTS)
"""By what a list may be sorted; "gain" is the latency as a share of the fastest other runtime's."""

_JOINED = jobs.join(models, jobs.c.model == models.c.id).join(users, jobs.c.owner == users.c.id)
_LISTED: Select[Any] = select(jobs, models.c.name.label("model_name"), users.c.name.label("owner_name")).select_from(
    _JOINED
)
_MOST_WORDS = 8
_MOST_RAN = 1000
_PAST = 50  # jobs from which times and gains of new ones are foretold


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are listed, and in what order.

    Each word of `text` must occur in the job's id, its model's name, its device or its owner's name.  No `states` means
    all of them.  `model` is the number of a model.  Jobs that have nothing to be sorted by come last.
    """

    text: str = ""
    states: frozenset[JobStatus] = frozenset()
    device: str = ""
    model: int | None = None
    everybody: bool = False
    sort: str = "created"
    descending: bool = True


class ListedJob(NamedTuple):
    """A job with the names of its model and of its owner."""

    job: Job
    model: str
    owner: str


class BestResult(NamedTuple):
    """The job that made a model fastest, what the network takes then, and how many jobs of the model are done."""

    job: str
    latency_ms: float | None
    fastest_baseline: FastestBaseline | None
    done: int


class PastJobs(NamedTuple):
    """Jobs that are done on one type of device: seconds each took, and the share of the fastest runtime it reached."""

    seconds: tuple[float, ...]
    shares: tuple[float, ...]


class JobListing:
    """Reads lists of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(
        self, visitor: Visitor, wanted: JobFilter, *, offset: int = 0, limit: int = 25
    ) -> tuple[list[ListedJob], int]:
        """Returns the jobs from place `offset` on, at most `limit`, and how many there are in all.

        They are the visitor's own, or everybody's for who may see them.
        """
        found = _condition(visitor, wanted)
        column = _SORTS.get(wanted.sort, jobs.c.created)
        order = column.desc() if wanted.descending else column.asc()
        query = (
            _LISTED.where(*found)
            .order_by(column.is_(None), order, jobs.c.created.desc(), jobs.c.id.desc())
            .offset(offset)
            .limit(limit)
        )
        with self._database.snapshot() as connection:
            total = connection.scalar(select(func.count()).select_from(_JOINED).where(*found)) or 0
            return self._read(query), total

    def page(
        self, visitor: Visitor, wanted: JobFilter, *, before: tuple[float, str] | None = None, limit: int = 50
    ) -> list[ListedJob]:
        """Returns the latest of these jobs, newest first, whatever `wanted` says of the order.

        `before` is the (created, id) of the last one that was seen, to read on.
        """
        query = _LISTED.where(*_condition(visitor, wanted)).order_by(jobs.c.created.desc(), jobs.c.id.desc())
        if before is not None:
            created, id = before
            query = query.where((jobs.c.created < created) | ((jobs.c.created == created) & (jobs.c.id < id)))
        return self._read(query.limit(limit))

    def best(self, visitor: Visitor, ids: Iterable[int]) -> dict[int, BestResult]:
        """Returns the best results of the visitor's jobs by model; those without a job that is done are left out."""
        order = (jobs.c.latency_ms.is_(None), jobs.c.latency_ms, jobs.c.created.desc(), jobs.c.id.desc())
        place = func.row_number().over(partition_by=jobs.c.model, order_by=order).label("place")
        done = func.count().over(partition_by=jobs.c.model).label("done")
        ratios = (jobs.c.ratio, jobs.c.ratio_low, jobs.c.ratio_high)
        columns = (jobs.c.id, jobs.c.model, jobs.c.latency_ms, jobs.c.baseline, jobs.c.baseline_ms, *ratios)
        theirs = (jobs.c.owner == visitor.user) & jobs.c.model.in_(sorted(set(ids)))
        ranked = select(*columns, place, done).where(theirs, jobs.c.state == JobStatus.DONE.value).subquery()
        with self._database.snapshot() as connection:
            rows = list(connection.execute(select(ranked).where(ranked.c.place == 1)))
        return {row.model: BestResult(row.id, row.latency_ms, baseline_of(row), row.done) for row in rows}

    def waiting(self) -> list[ListedJob]:
        """The jobs that are queued, whoever they belong to, oldest first."""
        queued = _LISTED.where(jobs.c.state == JobStatus.QUEUED.value)
        return self._read(queued.order_by(jobs.c.created, jobs.c.id))

    def ran(self, since: float) -> list[ListedJob]:
        """The jobs that began, and were under way after this time (seconds since 1970), whoever they belong to."""
        later = jobs.c.started.is_not(None) & (jobs.c.ended.is_(None) | (jobs.c.ended >= since))
        return self._read(_LISTED.where(later).order_by(jobs.c.started.desc(), jobs.c.created).limit(_MOST_RAN))

    def _read(self, query: Select[Any]) -> list[ListedJob]:
        with self._database.snapshot() as connection:
            rows = [plain(row) for row in connection.execute(query)]
        return [ListedJob(job_of_row(row), row["model_name"], row["owner_name"]) for row in rows]

    def past(self, device: str) -> PastJobs:
        """What the latest jobs that were tuned on this type of device took and reached, whoever they belong to.

        Jobs that an earlier result answered, or that were compiled alone, took no time that tells of others.
        """
        tuned = select(steps.c.job).where(steps.c.job == jobs.c.id, steps.c.state == JobStatus.TUNING.value).exists()
        query = (
            select(jobs.c.started, jobs.c.ended, jobs.c.latency_ms, jobs.c.baseline_ms)
            .where(jobs.c.state == JobStatus.DONE.value, jobs.c.device == device, jobs.c.started.is_not(None), tuned)
            .order_by(jobs.c.ended.desc())
            .limit(_PAST)
        )
        with self._database.snapshot() as connection:
            rows = list(connection.execute(query))
        return PastJobs(
            tuple(row.ended - row.started for row in rows),
            tuple(row.latency_ms / row.baseline_ms for row in rows if row.latency_ms and row.baseline_ms),
        )

    def minutes_ahead(self) -> tuple[int, float]:
        """How many jobs are not over, and the sum of the minutes that they may take."""
        over = [state.value for state in ENDS]
        query = select(func.count(), func.sum(jobs.c.minutes)).where(jobs.c.state.not_in(over))
        with self._database.snapshot() as connection:
            count, minutes = connection.execute(query).one()
        return int(count), float(minutes or 0.0)


def _condition(visitor: Visitor, wanted: JobFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if not (wanted.everybody and visitor.sees(-1)):
        found.append(jobs.c.owner == visitor.user)
    if wanted.states:
        found.append(jobs.c.state.in_([state.value for state in wanted.states]))
    if wanted.device:
        found.append(jobs.c.device == wanted.device)
    if wanted.model is not None:
        found.append(jobs.c.model == wanted.model)
    for word in wanted.text.lower().split()[:_MOST_WORDS]:
        columns = (models.c.name, jobs.c.id, jobs.c.device, users.c.name)
        found.append(or_(*(func.lower(column).contains(word, autoescape=True) for column in columns)))
    return found
