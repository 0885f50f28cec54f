"""Runs (one tuning of one model, across all processes that worked on it) and their events."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update

from kintune.core.messages import Committed, ItemStatus
from kintune.errors import RecordsError
from kintune.records.blobs import pack, unpack
from kintune.records.database import Clock, Database
from kintune.records.integrity import Damage, OnDamage, refuse, row_id, sealed, verified
from kintune.records.schema import events, runs

__all__ = ["Events", "Run", "RunState", "Runs"]


class RunState(str, Enum):
    """The state of a run.  RUNNING and INTERRUPTED runs can be resumed; the other states are final."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    FAILED = "failed"
    ABANDONED = "abandoned"

    @property
    def final(self) -> bool:
        """Whether the run is over for good."""
        return self not in (RunState.RUNNING, RunState.INTERRUPTED)


class Run(msgspec.Struct, frozen=True):
    """One run.

    `key` is a digest of the model, the target and the options on which the result depends: a run continues an
    unfinished one of the same key.  `spec` is the encoded `JobSpec` of its job.  `created` and `updated` are times of
    day; `active_seconds` counts only time in which a process worked on it.
    """

    run_id: str
    key: str
    model_name: str
    model_digest: str
    spec: bytes
    state: RunState
    created: str
    updated: str
    active_seconds: float
    seeds: dict[str, int]
    versions: dict[str, str]
    summary: bytes | None


class Runs:
    """Runs by id."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def create(
        self,
        run_id: str,
        *,
        key: str,
        model_name: str,
        model_digest: str = "",
        spec: bytes = b"",
        seeds: dict[str, int] | None = None,
        versions: dict[str, str] | None = None,
    ) -> Run:
        """Creates a run.

        Raises:
            RecordsError: there is one with this id.
        """
        at = self._clock()
        run = Run(
            run_id,
            key,
            model_name,
            model_digest,
            spec,
            RunState.RUNNING,
            at,
            at,
            0.0,
            seeds or {},
            versions or {},
            None,
        )
        with self._database.transaction() as connection:
            if connection.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is not None:
                raise RecordsError(f"records: run {run_id} is there already; go on with it or choose another id")
            connection.execute(insert(runs).values(**_row(run)))
        return run

    def update(
        self,
        run_id: str,
        *,
        state: RunState | None = None,
        model_digest: str | None = None,
        active_seconds: float | None = None,
        summary: bytes | None = None,
    ) -> Run:
        """Changes the fields that are given.

        Raises:
            RecordsError: there is no such run, or its final state would change.
        """
        with self._database.transaction() as connection:
            run = self.get(run_id)
            if state is not None and state is not run.state and run.state.final:
                raise RecordsError(f"records: run {run_id} is {run.state.value} and cannot become {state.value}")
            changed = Run(
                run_id=run_id,
                key=run.key,
                model_name=run.model_name,
                model_digest=run.model_digest if model_digest is None else model_digest,
                spec=run.spec,
                state=run.state if state is None else state,
                created=run.created,
                updated=self._clock(),
                active_seconds=run.active_seconds if active_seconds is None else active_seconds,
                seeds=run.seeds,
                versions=run.versions,
                summary=run.summary if summary is None else summary,
            )
            connection.execute(update(runs).where(runs.c.run_id == run_id).values(**_row(changed)))
        return changed

    def find(self, run_id: str) -> Run | None:
        """Returns the run; None where there is none.

        Raises:
            DamagedRecord: its row changed.
        """
        with self._database.snapshot() as connection:
            for row in verified(runs, connection.execute(select(runs).where(runs.c.run_id == run_id))):
                return _run(row)
        return None

    def get(self, run_id: str) -> Run:
        """Returns the run.

        Raises:
            RecordsError: there is none.
            DamagedRecord: its row changed.
        """
        if (found := self.find(run_id)) is not None:
            return found
        raise RecordsError(f"records: no run {run_id}; `kintune records list` names all")

    def find_unfinished(self, key: str, passing_over: Collection[str] = ()) -> Run | None:
        """Returns the latest run of this key that can be resumed, except the ids `passing_over`; None without one.

        Raises:
            DamagedRecord: its row changed.
        """
        unfinished = [state.value for state in RunState if not state.final]
        query = (
            select(runs)
            .where(runs.c.key == key, runs.c.state.in_(unfinished), runs.c.run_id.not_in(passing_over))
            .order_by(runs.c.created.desc(), runs.c.run_id.desc())
            .limit(1)
        )
        with self._database.snapshot() as connection:
            for row in verified(runs, connection.execute(query)):
                return _run(row)
        return None

    def list(self, on_damage: OnDamage = refuse) -> tuple[Run, ...]:
        """All runs, the latest first."""
        query = select(runs).order_by(runs.c.created.desc(), runs.c.run_id.desc())
        with self._database.snapshot() as connection:
            return tuple(_run(row) for row in verified(runs, connection.execute(query), on_damage))


def _row(run: Run) -> dict[str, object]:
    values = msgspec.structs.asdict(run)
    values["state"] = run.state.value
    for name in ("seeds", "versions"):
        values[name] = msgspec.json.encode(values[name]).decode()
    return sealed(runs, **values)


def _run(row: Mapping[str, Any]) -> Run:
    values = {column.name: row[column.name] for column in runs.columns if column.name != "checksum"}
    values["state"] = RunState(row["state"])
    for name in ("seeds", "versions"):
        values[name] = msgspec.json.decode(row[name])
    return Run(**values)


class Events:
    """Events by run, numbered from 0 without a gap, from which a job can be restored.  They are never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, run_id: str, *added: Committed) -> None:
        """Appends events to a run, all or none.

        Raises:
            RecordsError: a `seq` is not the next number.
        """
        with self._database.transaction() as connection:
            for expected, event in enumerate(added, self.count(run_id)):
                if event.seq != expected:
                    raise RecordsError(
                        f"records: event {event.seq} of run {run_id} cannot be added: {expected} is the next"
                    )
            if added:
                connection.execute(insert(events), [_event_row(run_id, event) for event in added])

    def count(self, run_id: str) -> int:
        """How many events the run has; the number of its next one."""
        with self._database.snapshot() as connection:
            last = connection.scalar(select(func.max(events.c.seq)).where(events.c.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def history(self, run_id: str) -> tuple[Committed, ...]:
        """Returns all events of a run, in sequence; none can be left out, since later ones depend on it.

        Raises:
            DamagedRecord: one changed or is missing.
        """
        found: list[Committed] = []
        query = select(events).where(events.c.run_id == run_id).order_by(events.c.seq)
        with self._database.snapshot() as connection:
            for row in verified(events, connection.execute(query)):
                if row["seq"] != len(found):
                    raise Damage(events.name, f"{run_id}/{len(found)}", "it is missing").error()
                found.append(_event(row))
        return tuple(found)


def _event_row(run_id: str, event: Committed) -> dict[str, Any]:
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
