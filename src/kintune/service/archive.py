"""Back-up and restore: everything that a service has, in one tar file.

The tables are copied before the files that they name: files are never changed, and newer ones do no harm.  SQLite is
copied by its own online back-up, PostgreSQL by `pg_dump`, so that a service need not stop for it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from sqlalchemy import URL, make_url

from kintune.core.version import __version__
from kintune.errors import EnvironmentProblem, InputError, StorageError
from kintune.files import move_into_place
from kintune.service.blob_store import BlobStore
from kintune.service.settings import ServiceSettings
from kintune.wire.channel import UNREADABLE

__all__ = ["BackupManifest", "back_up", "restore"]
_MANIFEST, _DUMP = "kintune-service.json", "database.dump"
_CONTENT = re.compile(r"content/([0-9a-f]{64})")
_SQLITE = ("service.sqlite", "records.sqlite")
_MOST_MANIFEST = 1 << 20


class BackupManifest(msgspec.Struct, frozen=True):
    """What a back-up says of itself; `database` is the kind that it was taken from."""

    format: int
    version: str
    database: str
    settings: ServiceSettings


def back_up(settings: ServiceSettings, target: Path) -> int:
    """Writes everything to `target`, which must not exist; returns how many files of the store it holds.

    Raises:
        InputError: the target exists.
        StorageError: it cannot be written.
        EnvironmentProblem: PostgreSQL's programs are missing.
    """
    if target.exists():
        raise InputError(f"{target} exists already; name a new file")
    kind = "postgresql" if settings.database else "sqlite"
    content, count = BlobStore(settings.content), 0
    part = target.with_name(f".{target.name}.part")
    try:
        with (
            os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file_of_tar,
            tarfile.open(fileobj=file_of_tar, mode="w", format=tarfile.PAX_FORMAT) as tar,
            tempfile.TemporaryDirectory() as place,
            content.unswept(),  # the files that the tables name must still be there once they have been copied
        ):
            manifest = BackupManifest(1, __version__, kind, msgspec.structs.replace(settings, database=""))
            _add_bytes(tar, _MANIFEST, msgspec.json.encode(manifest))
            for copy in _copies(settings, Path(place)):
                tar.add(copy, copy.name)
            for digest in content.digests():
                with content.open(digest) as file:
                    tar.addfile(tar.gettarinfo(arcname=f"content/{digest}", fileobj=file), file)
                count += 1
        move_into_place(part, target)
    except OSError as error:
        raise StorageError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)
    return count


def restore(source: Path, data: Path, database: str = "") -> ServiceSettings:
    """Make a service out of a back-up, in the directory `data`, which must be new or empty; returns its settings.

    A back-up of PostgreSQL is restored into the `database` of that URL, which must be empty.

    Raises:
        InputError: it is no back-up or a damaged one, or there is something in the way; nothing is left then.
        EnvironmentProblem: PostgreSQL's programs are missing.
    """
    try:
        if data.exists() and any(data.iterdir()):
            raise InputError(f"{data} is not empty; name a new directory")
        data.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{data}: cannot be made a directory for data ({error.strerror or error}); name another one"
        ) from error
    with tempfile.TemporaryDirectory(dir=data.parent) as name:
        place = Path(name) / "data"
        place.mkdir(mode=0o700)
        with _reading(source), tarfile.open(source) as tar:
            manifest = _manifest(tar, source)
            if bool(database) != (manifest.database == "postgresql"):
                wanted = "needs --database" if manifest.database == "postgresql" else "has files, and no --database"
                raise InputError(f"{source}: is a back-up of {manifest.database}; it {wanted}")
            _extract(tar, place, source)
        if database:
            options = ("--exit-on-error", "--no-owner", "--single-transaction")
            _run(database, _program("pg_restore"), *options, "--dbname", _libpq(database), str(place / _DUMP))
            (place / _DUMP).unlink()
        settings = msgspec.structs.replace(manifest.settings, data=str(data), database=database)
        (place / settings.file.name).write_bytes(msgspec.json.encode(settings))
        if data.exists():
            data.rmdir()
        os.replace(place, data)
    return settings


def _copies(settings: ServiceSettings, place: Path) -> Iterator[Path]:
    """Copies the tables to a directory; yields the files one after the other."""
    if settings.database:
        dump = place / _DUMP
        _run(settings.database, _program("pg_dump"), "--format=custom", "--file", str(dump), _libpq(settings.database))
        yield dump
        return
    for name in _SQLITE:
        source = settings.directory / name
        if source.exists():
            try:
                with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(place / name)) as copy:
                    live.backup(copy)
            except sqlite3.Error as error:
                raise StorageError(f"{source}: cannot be copied ({error})") from error
            yield place / name


def _manifest(tar: tarfile.TarFile, source: Path) -> BackupManifest:
    first = tar.next()
    file = tar.extractfile(first) if first is not None and first.name == _MANIFEST and first.isreg() else None
    if first is None or file is None or first.size > _MOST_MANIFEST:
        raise InputError(f"{source}: is no back-up of a service")
    manifest = msgspec.json.decode(file.read(), type=BackupManifest)
    if manifest.format != 1:
        raise InputError(
            f"{source}: was written by kintune {manifest.version}; restore it with that one or a newer one"
        )
    return manifest


def _extract(tar: tarfile.TarFile, place: Path, source: Path) -> None:
    content = BlobStore(place / "content")
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        named = _CONTENT.fullmatch(member.name)
        if file is None or not (named or member.name in (*_SQLITE, _DUMP, _MANIFEST)):
            raise InputError(f"{source}: {member.name[:80]!r} belongs to no back-up; nothing was restored")
        if member.name == _MANIFEST:
            continue  # describes the back-up itself, and was read
        if named is None:
            with (place / member.name).open("wb") as copy:
                shutil.copyfileobj(file, copy)
        elif content.put_open(file) != named[1]:
            raise InputError(f"{source}: the file {named[1][:12]} is damaged; nothing was restored")


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, *UNREADABLE, EOFError) as error:
        raise InputError(f"{source}: is no back-up of a service, or a damaged one ({error})") from error
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror or error})") from error


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def _program(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        raise EnvironmentProblem(f"{name} is missing: install PostgreSQL's client programs")
    return found


def _libpq(url: str) -> str:
    """The URL for PostgreSQL's programs, without the password: whoever is on this machine sees their arguments."""
    parts = make_url(url)
    bare = URL.create("postgresql", parts.username, None, parts.host, parts.port, parts.database, parts.query)
    return bare.render_as_string(hide_password=False)


def _run(url: str, *command: str) -> None:
    password = make_url(url).password
    environment = {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StorageError(f"{Path(command[0]).name} failed: {last}")
