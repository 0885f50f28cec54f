"""What was uploaded, models and sets of inputs: their owners, their files, and the findings of the inspection.

It also counts what uploads and results take of the storage that a user may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from kintune.errors import InputError, OrderError
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, Visitor
from kintune.service.database import plain
from kintune.service.job_status import ENDS
from kintune.service.schema import jobs, models, users

__all__ = ["INPUTS", "MODEL", "Findings", "Input", "ModelStore", "Storage", "StoredModel", "shortened", "storage_of"]

MODEL, INPUTS = "model", "inputs"
"""The kinds of uploads: an ONNX file, or an .npz file with a set of inputs."""

_UNWANTED = re.compile(r"[^\w.+-]+")
_MOST_WORDS = 8  # that are searched for
_MOST_BYTES = 128  # of a name: files are named after it


class Input(msgspec.Struct, frozen=True):
    """One input of a model; extents that are not fixed are None.

    `names` has what the file calls its dimensions, "" for none; it is empty where it names none.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    names: tuple[str, ...] = ()


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


class Storage(msgspec.Struct, frozen=True):
    """How many bytes a user's uploads take, and how many the executables of their jobs.

    Both together may take `most`; the `largest` is that of the uploads.
    """

    uploads: int
    most: int
    largest: int = 0
    results: int = 0

    @property
    def used(self) -> int:
        """How many bytes uploads and results take together."""
        return self.uploads + self.results

    @property
    def left(self) -> int:
        """How many more there may be; negative where there are too many already."""
        return self.most - self.used

    @property
    def longest_upload(self) -> int:
        """As many bytes as are left, or as the largest upload has: the same file again takes no more."""
        return max(self.left, self.largest)

    def refusal(self, why: str = "this one is too much") -> Forbidden:
        """The error for a user whose upload, or job, would be too much, which is said by `why`."""
        return Forbidden(
            f"your uploads and results take {self.used / (1 << 20):.1f} of the {self.most >> 20} MB that you may keep, "
            f"and {why}; delete models or sets of inputs that you need no more, on the page Models, by `kintune "
            "uploads --delete NUMBER`, or by DELETE /api/v1/models/ID and DELETE /api/v1/inputs/ID; or results, on the "
            "page Jobs, by `kintune job delete-files ID`, or by DELETE /api/v1/jobs/ID/files"
        )


class ModelStore:
    """Models, and sets of inputs, by number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, owner: int, name: str, file: str, size: int, now: float, expires: float | None, kind: str = MODEL
    ) -> StoredModel:
        """Adds an upload and returns it; the same file again is the same upload, restored if it was deleted.

        Raises:
            Forbidden: the owner's uploads would take more than they may.
            InputError: it is to be a model, and is a set of inputs.
        """
        name = _clean(name)
        with self._database.transaction() as connection:
            connection.execute(select(users.c.id).where(users.c.id == owner).with_for_update())
            mine = (models.c.owner == owner) & (models.c.file == file)
            columns = (models.c.id, models.c.deleted, models.c.kind)
            before = connection.execute(select(*columns).where(mine)).one_or_none()
            if before is not None and before.deleted is None and (before.kind, kind) == (INPUTS, MODEL):
                raise InputError(f"this file is your set of inputs {before.id}, and no model")
            if (before is None or before.deleted is not None) and size > (storage := self.storage(owner)).left:
                raise storage.refusal()
            if before is None:
                row = {"owner": owner, "name": name, "file": file, "size": size, "created": now, "expires": expires}
                known = connection.execute(insert(models).values(kind=kind, **row).returning(models.c.id)).scalar_one()
            else:
                known = before.id
                values = {"name": name, "expires": expires, "deleted": None, "kind": kind}
                connection.execute(update(models).where(models.c.id == known).values(**values))
            return self._get(known)

    def of_file(self, owner: int, file: str) -> StoredModel | None:
        """Returns the owner's upload of a file, of whatever kind, be it deleted or not; None if there never was one."""
        mine = (models.c.owner == owner) & (models.c.file == file)
        with self._database.snapshot() as connection:
            row = connection.execute(select(models).where(mine)).one_or_none()
        return None if row is None else _model(plain(row))

    def renew(self, owner: int, name: str, file: str, expires: float | None, kind: str = MODEL) -> StoredModel:
        """Gives an upload of a kind that is not deleted another name and time to live; returns it.

        Raises:
            NotFound: the owner has none with this file.
        """
        mine = (models.c.owner == owner) & (models.c.file == file) & (models.c.kind == kind)
        values = {"name": _clean(name), "expires": expires}
        renewal = update(models).where(mine, models.c.deleted.is_(None)).values(**values).returning(models.c.id)
        with self._database.transaction() as connection:
            known = connection.execute(renewal).scalar_one_or_none()
            if known is None:
                raise NotFound(f"you have no {_CALLED[kind]} with this content; upload the file")
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

    def storage(self, owner: int) -> Storage:
        """What the uploads and the results of a user take that are not deleted."""
        with self._database.snapshot() as connection:
            return storage_of(connection, owner)

    def names(self, ids: Iterable[int]) -> dict[int, str]:
        """Returns the names of models by id, be they deleted or not."""
        query = select(models.c.id, models.c.name).where(models.c.id.in_(sorted(set(ids))))
        with self._database.snapshot() as connection:
            return {row.id: row.name for row in connection.execute(query)}

    def page(
        self, visitor: Visitor, before: int | None = None, limit: int = 100, kind: str = MODEL, text: str = ""
    ) -> list[StoredModel]:
        """Returns the visitor's uploads of a kind, newest first, from the one after the number `before` on.

        Their names have each word of `text` in them.
        """
        mine = (models.c.owner == visitor.user) & (models.c.kind == kind)
        for word in text.lower().split()[:_MOST_WORDS]:
            mine &= func.lower(models.c.name).contains(word, autoescape=True)
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

        Raises:
            NotFound: there is no such model.
            OrderError: a job that is not over needs it.
        """
        with self._database.transaction() as connection:
            found = self.get(visitor, model, kind)
            if (busy := _needed(connection).get(found.id)) is not None:
                raise OrderError(f"job {busy} needs the {_CALLED[kind]} {model}; cancel it first")
            connection.execute(update(models).where(models.c.id == found.id).values(deleted=now))

    def expire(self, now: float) -> list[int]:
        """Deletes uploads whose time is over and that no job needs; returns which."""
        late = models.c.deleted.is_(None) & (models.c.expires <= now)
        with self._database.transaction() as connection:
            needed = _needed(connection)
            gone = [id for id in connection.scalars(select(models.c.id).where(late)) if id not in needed]
            connection.execute(update(models).where(models.c.id.in_(gone)).values(deleted=now))
        return gone

    def files(self) -> set[str]:
        """The files of all uploads that are not deleted, or that a job needs that is not over."""
        with self._database.snapshot() as connection:
            needed = _needed(connection)
            rows = connection.execute(select(models.c.id, models.c.file, models.c.deleted))
            return {row.file for row in rows if row.deleted is None or row.id in needed}

    def _get(self, model: int, kind: str = MODEL) -> StoredModel:
        with self._database.snapshot() as connection:
            row = connection.execute(select(models).where(models.c.id == model)).one_or_none()
        if row is None:
            raise NotFound(f"there is no {_CALLED[kind]} {model}")
        return _model(plain(row))


def storage_of(connection: Connection, owner: int) -> Storage:
    """What the uploads and the results of a user take that are not deleted; one that several jobs have counts once."""
    live = (models.c.owner == owner) & models.c.deleted.is_(None)
    uploads, largest = connection.execute(select(func.sum(models.c.size), func.max(models.c.size)).where(live)).one()
    theirs = (jobs.c.owner == owner) & jobs.c.executable.is_not(None)
    each = select(func.max(jobs.c.executable_size).label("size")).where(theirs).group_by(jobs.c.executable).subquery()
    results = connection.scalar(select(func.sum(each.c.size)))
    quota = connection.execute(select(users.c.quota).where(users.c.id == owner)).scalar_one()
    most = msgspec.json.decode(quota, type=Quota).storage_mb << 20
    return Storage(int(uploads or 0), most, int(largest or 0), int(results or 0))


_CALLED = {MODEL: "model", INPUTS: "set of inputs"}


class _Uses(msgspec.Struct, frozen=True):
    """The sets of inputs that a job quantises with or compares outputs on; the rest of what it wants is left out."""

    calibrate: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()


def _needed(connection: Connection) -> dict[int, str]:
    """The uploads that jobs need which are not over, each with one of these jobs."""
    ends = [state.value for state in ENDS]
    needed: dict[int, str] = {}
    for row in connection.execute(select(jobs.c.id, jobs.c.model, jobs.c.wanted).where(jobs.c.state.not_in(ends))):
        uses = msgspec.json.decode(row.wanted, type=_Uses)
        needed.update(dict.fromkeys((row.model, *uses.calibrate, *uses.inputs), row.id))
    return needed


def _clean(name: str) -> str:
    """What a model is called: the last part of what the client says, without what means something in paths."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".onnx").removesuffix(".npz")
    return shortened(_UNWANTED.sub("_", last).strip("._")) or "model"


def shortened(name: str) -> str:
    """Returns the beginning of a name that takes at most 128 bytes, so that files can be named after it."""
    return name.encode()[:_MOST_BYTES].decode(errors="ignore")


def _model(row: dict[str, object]) -> StoredModel:
    findings = row["findings"]
    return msgspec.convert(
        {**row, "findings": None if findings is None else msgspec.json.decode(str(findings))}, StoredModel
    )
