"""The jobs in the database: submitted once, changed step by step, each step a row of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.errors import InputError, OrderError
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, QuotaSpent, Visitor
from kintune.service.database import plain
from kintune.service.job_request import JobRequest
from kintune.service.job_status import ENDS, JobCommand, JobStatus, after, may_command
from kintune.service.model_store import storage_of
from kintune.service.schema import commands, job_runs, jobs, models, steps, users

__all__ = [
    "Job",
    "JobRepository",
    "JobStep",
    "PendingCommand",
    "baseline_of",
    "gain_columns",
    "job_of_row",
    "seconds_until_free",
]
_OVER = [state.value for state in ENDS]
_HAS_FILES = jobs.c.executable.is_not(None) | jobs.c.log.is_not(None)
_DAY_S = 86400.0
_JOB_ENDS_S = 60.0  # after which it is worth asking whether a job has ended


class JobStep(msgspec.Struct, frozen=True):
    """A job came into a state at a time, for a reason."""

    state: JobStatus
    reason: str
    at: float


class Job(msgspec.Struct, frozen=True):
    """A job; `reason` is that of its last step, `progress` JSON that is only to be shown.

    `latency_ms` is that of its result, or the estimate while it is under way; `baseline` is the fastest other runtime
    that was timed for it, and `baseline_ms` what that takes; `ratio`, `ratio_low` and `ratio_high` are how the result
    compares with it, where both were timed in turns.  `files_removed` is when its executable and its log were.
    `executable_size` is in bytes.  One that has failed was `refused` if the same again would fail likewise.
    """

    id: str
    owner: int
    model: int
    wanted: JobRequest
    priority: float
    retry_of: str | None
    state: JobStatus
    reason: str
    run_id: str | None
    progress: str | None
    report: str | None
    executable: str | None
    log: str | None
    created: float
    started: float | None
    ended: float | None
    latency_ms: float | None = None
    baseline: str | None = None
    baseline_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    files_removed: float | None = None
    executable_size: int | None = None
    refused: bool | None = None

    @property
    def has_files(self) -> bool:
        """Whether it has an executable or a log."""
        return self.executable is not None or self.log is not None

    @property
    def fastest_baseline(self) -> FastestBaseline | None:
        """The fastest other runtime, and how the job's latency stands against it; None where none was timed."""
        return baseline_of(self)


class PendingCommand(msgspec.Struct, frozen=True):
    """A command to a job that is not carried out yet."""

    id: int
    job: str
    command: JobCommand
    value: float | None


class JobRepository:
    """Jobs by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def together(self) -> AbstractContextManager[Connection]:
        """A transaction: its changes are kept together or not at all."""
        return self._database.transaction()

    # what visitors ask ----------------------------------------------------------------------------------------------

    def submit(
        self,
        visitor: Visitor,
        model: int,
        wanted: JobRequest,
        now: float,
        *,
        key: str | None = None,
        retry_of: str | None = None,
    ) -> tuple[Job, bool]:
        """Returns a new job and True; with the idempotency `key` of an earlier job, that job and False.

        Raises:
            Forbidden: the visitor's quota is used up, that of storage as well.
            InputError: the key stands for another job.
        """
        with self._database.transaction() as connection:
            connection.execute(select(users.c.id).where(users.c.id == visitor.user).with_for_update())
            if key is not None:
                mine = (jobs.c.owner == visitor.user) & (jobs.c.idempotency_key == key)
                row = connection.execute(select(jobs).where(mine)).one_or_none()
                if row is not None:
                    return self._same(job_of_row(plain(row)), model, wanted), False
            self._check_quota(connection, visitor, wanted, now)
            id = secrets.token_hex(6)
            connection.execute(
                insert(jobs).values(
                    id=id,
                    owner=visitor.user,
                    model=model,
                    wanted=msgspec.json.encode(wanted).decode(),
                    device=wanted.device,
                    priority=wanted.priority,
                    share=wanted.share,
                    minutes=wanted.minutes or 0.0,
                    idempotency_key=key,
                    retry_of=retry_of,
                    state=JobStatus.QUEUED.value,
                    reason="",
                    created=now,
                )
            )
            connection.execute(insert(steps).values(job=id, seq=0, state=JobStatus.QUEUED.value, reason="", at=now))
            return self._get(connection, id), True

    def retry(self, visitor: Visitor, old: Job, now: float) -> tuple[Job, bool]:
        """Returns a new job that resumes an old one, and True; if a job does so already, that job and False.

        The new job belongs to the old one's owner, whoever asks.

        Raises:
            OrderError: the old one has not failed and was not cancelled.
            Forbidden: the owner's quota is used up.
        """
        if old.state not in (JobStatus.FAILED, JobStatus.CANCELLED):
            raise OrderError(f"job {old.id} is {old.state.value}; only failed and cancelled ones can be retried")
        first = old.retry_of or old.id
        with self._database.transaction() as connection:
            owner = connection.execute(select(users).where(users.c.id == old.owner).with_for_update()).one()
            at_it = connection.execute(
                select(jobs).where(jobs.c.retry_of == first, jobs.c.state.not_in(_OVER)).limit(1)
            ).one_or_none()
            if at_it is not None:
                return job_of_row(plain(at_it)), False
            quota = msgspec.json.decode(owner.quota, type=Quota)
            theirs = msgspec.structs.replace(visitor, user=old.owner, name=owner.name, quota=quota)
            return self.submit(theirs, old.model, old.wanted, now, retry_of=first)

    def get(self, visitor: Visitor, job: str) -> Job:
        """Returns a job that the visitor may see.

        Raises:
            NotFound: there is none.
        """
        with self._database.snapshot() as connection:
            found = self._get(connection, job)
        if not visitor.sees(found.owner):
            raise NotFound(f"there is no job {job[:16]}")
        return found

    def of_service(self, job: str) -> Job:
        """Returns a job for the service itself, whoever it belongs to.

        Raises:
            NotFound: there is none.
        """
        with self._database.snapshot() as connection:
            return self._get(connection, job)

    def models_of(self, visitor: Visitor, ids: Iterable[str]) -> dict[str, int]:
        """Returns those of these jobs that are the visitor's own, by id, with the numbers of their models."""
        query = select(jobs.c.id, jobs.c.model).where(jobs.c.owner == visitor.user, jobs.c.id.in_(sorted(set(ids))))
        with self._database.snapshot() as connection:
            return {row.id: row.model for row in connection.execute(query)}

    def steps(self, job: Job) -> list[JobStep]:
        """All its steps, in order."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(steps).where(steps.c.job == job.id).order_by(steps.c.seq))
            return [JobStep(JobStatus(row.state), row.reason, row.at) for row in rows]

    def command(self, job: Job, command: JobCommand, now: float, value: float | None = None) -> None:
        """Records a command to a job.

        Raises:
            OrderError: it makes no sense in the job's state.
        """
        with self._database.transaction() as connection:
            state = self._get(connection, job.id).state
            if not may_command(state, command):
                raise OrderError(f"job {job.id} is {state.value}: there is nothing to {command.value}")
            same = (commands.c.job == job.id) & (commands.c.wish == command.value) & commands.c.granted.is_(None)
            if (
                command is not JobCommand.PRIORITY
                and connection.scalar(select(commands.c.id).where(same).limit(1)) is not None
            ):
                return
            connection.execute(insert(commands).values(job=job.id, wish=command.value, value=value, at=now))

    def remove_files(self, job: Job, now: float) -> bool:
        """Forgets the executable and the log of a job; returns whether there was one.

        The report stays.  A file goes with the next sweep, unless another job has it as well.

        Raises:
            OrderError: the job is not over.
        """
        with self._database.transaction() as connection:
            state = self._get(connection, job.id).state
            if not state.over:
                raise OrderError(f"job {job.id} is {state.value}; its files can be deleted when it has ended")
            return bool(_remove_files(connection, jobs.c.id == job.id, now))

    def expire_files(self, before: float, now: float) -> list[str]:
        """Forgets, as `remove_files` does, those of all jobs that ended `before` this time; returns which jobs."""
        with self._database.transaction() as connection:
            return _remove_files(connection, jobs.c.state.in_(_OVER) & (jobs.c.ended <= before), now)

    # what the orchestrator does -------------------------------------------------------------------------------------

    def under_way(self) -> list[Job]:
        """The jobs that are not over, oldest first."""
        query = select(jobs).where(jobs.c.state.not_in(_OVER)).order_by(jobs.c.created, jobs.c.id)
        with self._database.snapshot() as connection:
            return [job_of_row(plain(row)) for row in connection.execute(query)]

    def have_several_users(self) -> bool:
        """Whether more than one user may submit jobs."""
        with self._database.snapshot() as connection:
            return (connection.scalar(select(func.count()).select_from(users).where(~users.c.disabled)) or 0) > 1

    def like(self, job: Job, limit: int = 5) -> list[Job]:
        """Returns finished jobs on the same file whose results also serve this job's request, latest first.

        They are jobs of the same owner, or shared ones.
        """
        same_file = select(models.c.id).where(
            models.c.file == select(models.c.file).where(models.c.id == job.model).scalar_subquery()
        )
        theirs_to_use = (jobs.c.owner == job.owner) | jobs.c.share
        done = (jobs.c.state == JobStatus.DONE.value) & jobs.c.executable.is_not(None) & jobs.c.report.is_not(None)
        query = select(jobs).where(done, theirs_to_use, jobs.c.model.in_(same_file)).order_by(jobs.c.ended.desc())
        with self._database.snapshot() as connection:
            found = [job_of_row(plain(row)) for row in connection.execute(query.limit(50))]

        return [one for one in found if job.wanted.has_results_of(one.wanted)][:limit]

    def hidden_from(self, owner: int) -> frozenset[str]:
        """Returns the runs whose measurements this owner's jobs may not use: those that others do not share."""
        query = select(job_runs.c.run_id).join(jobs).where(jobs.c.owner != owner, ~jobs.c.share)
        with self._database.snapshot() as connection:
            return frozenset(connection.scalars(query))

    def pending_commands(self) -> list[PendingCommand]:
        """Returns the commands that are not carried out yet, in order."""
        query = select(commands).where(commands.c.granted.is_(None)).order_by(commands.c.id)
        with self._database.snapshot() as connection:
            return [
                PendingCommand(row.id, row.job, JobCommand(row.wish), row.value) for row in connection.execute(query)
            ]

    def close_command(self, command: PendingCommand, now: float) -> None:
        """Records that a command was carried out, or came too late; `now` is in seconds since 1970."""
        with self._database.transaction() as connection:
            connection.execute(update(commands).where(commands.c.id == command.id).values(granted=now))
            if command.command is JobCommand.PRIORITY and command.value is not None:
                connection.execute(update(jobs).where(jobs.c.id == command.job).values(priority=command.value))

    def step(self, job: str, state: JobStatus, reason: str, now: float, **facts: str | float | None) -> Job:
        """Brings a job into a state, once, and records `facts` (`run_id`, `report` ...); returns the job.

        When it is over, its commands are closed.

        Raises:
            OrderError: the state cannot follow the one that the job is in.
        """
        with self._database.transaction() as connection:
            before = self._get(connection, job)
            after(before.state, state)
            values: dict[str, object] = {**facts, "state": state.value, "reason": reason}
            if before.started is None and state is not JobStatus.QUEUED:
                values["started"] = now
            if state.over:
                values["ended"] = now
                connection.execute(
                    update(commands).where(commands.c.job == job, commands.c.granted.is_(None)).values(granted=now)
                )
            connection.execute(update(jobs).where(jobs.c.id == job).values(**values))
            if facts.get("run_id") is not None:
                _note_run(connection, job, str(facts["run_id"]))
            if before.state is not state:
                seq = connection.scalar(select(func.max(steps.c.seq)).where(steps.c.job == job)) or 0
                row = {"job": job, "seq": seq + 1, "state": state.value, "reason": reason, "at": now}
                connection.execute(insert(steps).values(**row))
            return self._get(connection, job)

    def progressed(self, job: str, progress: ProgressReport) -> None:
        """Records progress, which is only shown and may be lost."""
        values = {
            "progress": msgspec.json.encode(progress).decode(),
            **gain_columns(progress.best_ms, progress.fastest_baseline),
        }
        with self._database.transaction() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job).values(**values))

    def files(self) -> set[str]:
        """All files that jobs refer to."""
        found: set[str] = set()
        with self._database.snapshot() as connection:
            for row in connection.execute(select(jobs.c.report, jobs.c.executable, jobs.c.log)):
                found.update(file for file in row if file is not None)
        return found

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs there are in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.snapshot() as connection:
            return {JobStatus(state): count for state, count in connection.execute(query)}

    # inside ---------------------------------------------------------------------------------------------------------

    def _get(self, connection: Connection, job: str) -> Job:
        row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
        if row is None:
            raise NotFound(f"there is no job {job[:16]}")
        return job_of_row(plain(row))

    @staticmethod
    def _same(job: Job, model: int, wanted: JobRequest) -> Job:
        if (job.model, job.wanted) != (model, wanted):
            raise InputError(f"the idempotency key was used for another job, {job.id}; use a new one")
        return job

    @staticmethod
    def _check_quota(connection: Connection, visitor: Visitor, wanted: JobRequest, now: float) -> None:
        mine = jobs.c.owner == visitor.user
        going = mine & jobs.c.state.not_in(_OVER)
        open_jobs, promised = connection.execute(select(func.count(), func.sum(jobs.c.minutes)).where(going)).one()
        if open_jobs >= visitor.quota.jobs:
            said = f"{open_jobs} of your jobs are not over, which is all that you may have at once; cancel one"
            if not visitor.quota.jobs:
                raise Forbidden("you may submit no jobs")
            raise QuotaSpent(said, _JOB_ENDS_S)
        day_ago = now - _DAY_S
        over = mine & jobs.c.started.is_not(None) & (jobs.c.ended > day_ago)
        ended = connection.execute(select(jobs.c.started, jobs.c.ended, jobs.c.minutes).where(over)).all()
        # From its start to its end a job may also have waited, or the service been down.
        tuned = [(row.ended, min((row.ended - max(row.started, day_ago)) / 60, row.minutes)) for row in ended]
        asked = float(promised or 0.0) + (wanted.minutes or 0.0)
        minutes = asked + sum(took for _, took in tuned)
        if minutes > visitor.quota.minutes:
            said = (
                f"that would make {minutes:.0f} minutes of tuning within a day; you may have "
                f"{visitor.quota.minutes:g}: ask for fewer"
            )
            if (wanted.minutes or 0.0) > visitor.quota.minutes:
                raise Forbidden(said)
            raise QuotaSpent(said, seconds_until_free(tuned, visitor.quota.minutes - asked, day_ago))
        storage = storage_of(connection, visitor.user)
        if storage.left < 0:  # a result is never refused, so there may be too much
            raise storage.refusal("its result takes more")


def seconds_until_free(tuned: Iterable[tuple[float, float]], minutes: float, day_ago: float) -> float:
    """Returns in how many seconds the jobs that ended within a day take no more than so many `minutes` of it.

    `tuned` has when each ended and the minutes that it took.  Where that does not suffice, a job that is not over must
    end first: it is worth asking again after a minute.
    """
    jobs_by_end = sorted(tuned)
    left = sum(took for _, took in jobs_by_end)
    for ended, took in jobs_by_end:
        left -= took
        if left <= minutes:
            return ended - day_ago
    return _JOB_ENDS_S


def job_of_row(row: dict[str, object]) -> Job:
    """Returns the job that a row of the table holds, by column name."""
    fields = {name: row[name] for name in Job.__struct_fields__}
    return msgspec.convert({**fields, "wanted": msgspec.json.decode(str(row["wanted"]))}, Job)


def gain_columns(latency_ms: float | None, fastest: FastestBaseline | None) -> dict[str, str | float | None]:
    """The columns that say what a network takes in milliseconds, and the fastest other runtime."""
    paired = fastest if fastest is not None and fastest.low is not None else None
    return {
        "latency_ms": latency_ms,
        "baseline": None if fastest is None else fastest.name,
        "baseline_ms": None if fastest is None else fastest.ms,
        "ratio": None if paired is None else paired.ratio,
        "ratio_low": None if paired is None else paired.low,
        "ratio_high": None if paired is None else paired.high,
    }


def baseline_of(row: Job | Row[Any]) -> FastestBaseline | None:
    """Returns what the columns of a row say of the fastest other runtime; None where none was timed."""
    if row.baseline is None or row.baseline_ms is None:
        return None
    if row.ratio is not None:
        return FastestBaseline(row.baseline, row.baseline_ms, row.ratio, row.ratio_low, row.ratio_high)
    return FastestBaseline.of({row.baseline: row.baseline_ms}, row.latency_ms)


def _remove_files(connection: Connection, which: ColumnElement[bool], now: float) -> list[str]:
    """Forgets the executables and the logs of jobs; returns the ids of those that had any."""
    values = {"executable": None, "executable_size": None, "log": None, "files_removed": now}
    return list(connection.scalars(update(jobs).where(which, _HAS_FILES).values(**values).returning(jobs.c.id)))


def _note_run(connection: Connection, job: str, run_id: str) -> None:
    row = {"job": job, "run_id": run_id}
    if not connection.scalar(select(func.count()).select_from(job_runs).filter_by(**row)):
        connection.execute(insert(job_runs).values(**row))
