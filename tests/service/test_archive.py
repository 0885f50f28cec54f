from __future__ import annotations

import os
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from kintune.errors import InputError, StorageError
from kintune.records import Store
from kintune.service import archive
from kintune.service.access import Scope
from kintune.service.archive import back_up, restore
from kintune.service.blob_store import BlobStore
from kintune.service.database import open_database
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from tests.support.postgres import POSTGRES


@pytest.fixture
def service(tmp_path: Path) -> ServiceSettings:
    """A service with a user, a file and records."""
    data = tmp_path / "data"
    data.mkdir()
    settings = ServiceSettings(data=str(data), minutes=7.0)
    with closing(open_database(settings.service_database)) as database:
        people = Users(database)
        people.add_token(people.add_user("anna", 1.0), "", Scope.READ, 1.0, None)
    Store.open(settings.records).close()
    BlobStore(settings.content).put_bytes(b"a model")
    return settings


def test_a_restored_service_is_what_it_was(service: ServiceSettings, tmp_path: Path) -> None:
    assert back_up(service, tmp_path / "all.tar") == 1
    assert (tmp_path / "all.tar").stat().st_mode & 0o077 == 0  # nobody else's to read
    restored = restore(tmp_path / "all.tar", tmp_path / "again")
    assert restored.minutes == 7.0
    assert restored.directory == tmp_path / "again"
    with closing(open_database(restored.service_database)) as database:
        assert [user.name for user in Users(database).users()] == ["anna"]
        assert len(Users(database).tokens()) == 1
    with Store.open(restored.records, create=False) as store:
        assert store.notice is None
    content = BlobStore(restored.content)
    assert [content.path(digest).read_bytes() for digest in content.digests()] == [b"a model"]
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o700
    assert {path.name for path in restored.directory.iterdir()} >= {"settings.json", "content", "service.sqlite"}
    assert not (restored.directory / "kintune-service.json").exists()


def test_it_is_taken_while_somebody_is_at_work(service: ServiceSettings, tmp_path: Path) -> None:
    with closing(open_database(service.service_database)) as database, Store.open(service.records):
        Users(database).add_user("boris", 2.0)
        back_up(service, tmp_path / "all.tar")
        Users(database).add_user("carla", 3.0)
    with closing(open_database(restore(tmp_path / "all.tar", tmp_path / "again").service_database)) as database:
        assert [user.name for user in Users(database).users()] == ["anna", "boris"]


def test_what_the_tables_name_stays_until_the_back_up_is_whole(
    service: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_be_swept: list[bool] = []
    copies = archive._copies

    def watched(settings: ServiceSettings, place: Path) -> Iterator[Path]:
        for copy in copies(settings, place):
            with BlobStore(settings.content).sweeping() as may:
                may_be_swept.append(may)
            yield copy

    monkeypatch.setattr(archive, "_copies", watched)
    back_up(service, tmp_path / "all.tar")
    assert may_be_swept == [False, False]
    with BlobStore(service.content).sweeping() as may:
        assert may


def test_tables_that_cannot_be_copied_are_said_to_be(service: ServiceSettings, tmp_path: Path) -> None:
    Path(service.service_database).write_bytes(b"no database at all" * 1000)
    with pytest.raises(StorageError, match=r"service.sqlite: cannot be copied"):
        back_up(service, tmp_path / "all.tar")
    assert not (tmp_path / "all.tar").exists()


def test_nothing_is_overwritten(service: ServiceSettings, tmp_path: Path) -> None:
    target = tmp_path / "all.tar"
    back_up(service, target)
    with pytest.raises(InputError, match="exists already"):
        back_up(service, target)
    with pytest.raises(InputError, match="not empty"):
        restore(target, service.directory)


def test_a_place_where_there_can_be_no_directory_is_refused(service: ServiceSettings, tmp_path: Path) -> None:
    target = tmp_path / "all.tar"
    back_up(service, target)
    for data in (target, target / "below", tmp_path / ("a" * 300)):
        with pytest.raises(InputError, match="cannot be made a directory for data"):
            restore(target, data)
    assert {path.name for path in tmp_path.iterdir()} == {"all.tar", "data"}


@pytest.mark.parametrize("damage", ["cut", "flip", "bytes", "text", "foreign", "outside"])
def test_a_damaged_or_foreign_file_is_refused_and_nothing_left(
    service: ServiceSettings, tmp_path: Path, damage: str
) -> None:
    target = tmp_path / "all.tar"
    back_up(service, target)
    data = target.read_bytes()
    if damage == "cut":
        target.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        target.write_bytes(data.replace(b"a model", b"b model"))
    elif damage == "bytes":
        target.write_bytes(data.replace(b'"database":"sqlite"', b'"database":"sql\xffte"', 1))
    elif damage == "text":
        target.write_bytes(b"not a tar file at all" * 100)
    else:
        extra = tmp_path / "extra"
        extra.write_bytes(b"x")
        with tarfile.open(target, "w" if damage == "foreign" else "a") as tar:
            tar.add(extra, "../../outside")
    with pytest.raises(InputError):
        restore(target, tmp_path / "new" / "again")
    assert not (tmp_path / "new" / "again").exists()
    assert list((tmp_path / "new").iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_a_database_of_the_other_kind_is_refused(service: ServiceSettings, tmp_path: Path) -> None:
    back_up(service, tmp_path / "all.tar")
    with pytest.raises(InputError, match="no --database"):
        restore(tmp_path / "all.tar", tmp_path / "again", "postgresql+psycopg://kintune@/tuning")


@pytest.fixture
def databases() -> Iterator[tuple[str, str]]:
    """Two empty databases of the PostgreSQL server."""
    url, names = make_url(os.environ[POSTGRES]), [f"backup_{secrets.token_hex(4)}" for _ in range(2)]
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for name in names:
                connection.execute(text(f"CREATE DATABASE {name}"))
        one, two = (url.set(database=name).render_as_string(hide_password=False) for name in names)
        yield one, two
        with engine.connect() as connection:
            for name in names:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        engine.dispose()


@pytest.mark.needs("postgresql")
def test_postgresql_is_backed_up_into_another_database(tmp_path: Path, databases: tuple[str, str]) -> None:
    first, second = databases
    (tmp_path / "data").mkdir()
    settings = ServiceSettings(data=str(tmp_path / "data"), database=first)
    with closing(open_database(first)) as database:
        Users(database).add_user("anna", 1.0)
    Store.open(settings.records).close()
    back_up(settings, tmp_path / "all.tar")
    with pytest.raises(InputError, match="needs --database"):
        restore(tmp_path / "all.tar", tmp_path / "again")
    restored = restore(tmp_path / "all.tar", tmp_path / "again", second)
    with closing(open_database(restored.service_database)) as database:
        assert [user.name for user in Users(database).users()] == ["anna"]
    Store.open(restored.records, create=False).close()
    assert not (tmp_path / "again" / "database.dump").exists()
