"""What was uploaded, models and sets of inputs: their owners, their files, and the findings of the inspection."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from sqlalchemy import insert, or_, select, update

from kintune.errors import OrderError
from kintune.records.database import Database
from kintune.service.access import NotFound, Visitor
from kintune.service.database import plain
from kintune.service.job_status import ENDS
from kintune.service.schema import jobs, models, users

__all__ = ["INPUTS", "MODEL", "Findings", "Input", "ModelStore", "StoredModel"]

MODEL, INPUTS = "model", "inputs"
"""The kinds of uploads: an ONNX file, or an .npz file with a set of inputs."""

_UNWANTED = re.compile(r"[^\w.+-]+")
_NAME = 128


class Input(msgspec.Struct, frozen=True):
    """One input of a model; extents that are not fixed are None."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


class Findings(msgspec.Struct, frozen=True):
    """What the inspection of a model has found; `problem` says in one line why it cannot be used, if it cannot.

    `operators` counts them by name.
    """

    problem: str = ""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Input, ...] = ()
    operators: dict[str, int] = {}
    parameters: int = 0


class StoredModel(msgspec.Struct, frozen=True):
    """An upload of a `kind`, a model as a rule; `findings` are None until it was inspected."""

    id: int
    owner: int
    name: str
    file: str
    size: int
    findings: Findings | None
    created: float
    expires: float | None
    deleted: float | None
    kind: str = MODEL


class ModelStore:
    """Models, and sets of inputs, by number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, owner: int, name: str, file: str, size: int, now: float, expires: float | None, kind: str = MODEL
    ) -> StoredModel:
        """A model, or another kind, that was uploaded; the same file again is the same one, alive again if it was
        deleted.
        """
        name = _clean(name)
        with self._database.transaction() as connection:
            connection.execute(select(users.c.id).where(users.c.id == owner).with_for_update())
            mine = (models.c.owner == owner) & (models.c.file == file)
            known = connection.scalar(select(models.c.id).where(mine))
            if known is None:
                row = {"owner": owner, "name": name, "file": file, "size": size, "created": now, "expires": expires}
                known = connection.execute(insert(models).values(kind=kind, **row).returning(models.c.id)).scalar_one()
            else:
                values = {"name": name, "expires": expires, "deleted": None, "kind": kind}
                connection.execute(update(models).where(models.c.id == known).values(**values))
            return self._get(known)

    def get(self, visitor: Visitor, model: int, kind: str = MODEL) -> StoredModel:
        """Returns an upload of a kind, a model as a rule, that the visitor may see.

        Raises:
            NotFound: there is none.
        """
        found = self._get(model, kind)
        if not visitor.sees(found.owner) or found.deleted is not None or found.kind != kind:
            raise NotFound(f"there is no {_CALLED[kind]} {model}")
        return found

    def of_job(self, model: int) -> StoredModel:
        """Returns the model of a job, or a set of its inputs, whoever asks, be it deleted or not."""
        return self._get(model)

    def names(self, ids: Iterable[int]) -> dict[int, str]:
        """Returns the names of models by id, be they deleted or not."""
        query = select(models.c.id, models.c.name).where(models.c.id.in_(sorted(set(ids))))
        with self._database.snapshot() as connection:
            return {row.id: row.name for row in connection.execute(query)}

    def page(
        self, visitor: Visitor, before: int | None = None, limit: int = 100, kind: str = MODEL
    ) -> list[StoredModel]:
        """The visitor's models, or uploads of another kind, newest first."""
        mine = (models.c.owner == visitor.user) & (models.c.kind == kind)
        query = select(models).where(mine, models.c.deleted.is_(None))
        if before is not None:
            query = query.where(models.c.id < before)
        with self._database.snapshot() as connection:
            rows = connection.execute(query.order_by(models.c.id.desc()).limit(limit))
            return [_model(plain(row)) for row in rows]

    def found(self, model: int, findings: Findings) -> None:
        """Records what the inspection of a model has found."""
        text = msgspec.json.encode(findings).decode()
        with self._database.transaction() as connection:
            connection.execute(update(models).where(models.c.id == model).values(findings=text))

    def delete(self, visitor: Visitor, model: int, now: float, kind: str = MODEL) -> None:
        """Forget a model, or another kind; its file goes with the next sweep.

        Jobs that have begun have a copy of their inputs.

        Raises:
            NotFound: there is no such model.
            OrderError: a job that is under way needs it.
        """
        with self._database.transaction() as connection:
            found = self.get(visitor, model, kind)
            ends = [state.value for state in ENDS]
            busy = connection.scalar(
                select(jobs.c.id).where(jobs.c.model == found.id, jobs.c.state.not_in(ends)).limit(1)
            )
            if busy is not None:
                raise OrderError(f"job {busy} is at work on model {model}; cancel it first")
            connection.execute(update(models).where(models.c.id == found.id).values(deleted=now))

    def expire(self, now: float) -> list[int]:
        """Delete models whose time is over and that no job needs; returns which."""
        ends = [state.value for state in ENDS]
        needed = select(jobs.c.model).where(jobs.c.state.not_in(ends))
        late = models.c.deleted.is_(None) & (models.c.expires <= now) & models.c.id.not_in(needed)
        with self._database.transaction() as connection:
            gone = list(connection.scalars(select(models.c.id).where(late)))
            connection.execute(update(models).where(models.c.id.in_(gone)).values(deleted=now))
        return gone

    def files(self) -> set[str]:
        """The files of all models that are not deleted, or that a job under way needs."""
        ends = [state.value for state in ENDS]
        needed = select(jobs.c.model).where(jobs.c.state.not_in(ends))
        with self._database.snapshot() as connection:
            kept = or_(models.c.deleted.is_(None), models.c.id.in_(needed))
            return set(connection.scalars(select(models.c.file).where(kept)))

    def _get(self, model: int, kind: str = MODEL) -> StoredModel:
        with self._database.snapshot() as connection:
            row = connection.execute(select(models).where(models.c.id == model)).one_or_none()
        if row is None:
            raise NotFound(f"there is no {_CALLED[kind]} {model}")
        return _model(plain(row))


_CALLED = {MODEL: "model", INPUTS: "set of inputs"}


def _clean(name: str) -> str:
    """What a model is called: the last part of what the client says, without what means something in paths."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".onnx").removesuffix(".npz")
    return _UNWANTED.sub("_", last).strip("._")[:_NAME] or "model"


def _model(row: dict[str, object]) -> StoredModel:
    findings = row["findings"]
    return msgspec.convert(
        {**row, "findings": None if findings is None else msgspec.json.decode(str(findings))}, StoredModel
    )
