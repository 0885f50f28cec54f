from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import update

from kintune.core.version import __version__
from kintune.errors import RecordsError, StorageError
from kintune.records import Store
from kintune.records.integrity import sealed
from kintune.records.schema import SCHEMA_VERSION, meta
from kintune.testing.records import add_workload


def opening(path: Path | str, **options: bool) -> str:
    """What opening says."""
    with pytest.raises((RecordsError, StorageError)) as caught:
        Store.open(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_records_are_there_again_when_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "records.sqlite"
    with Store.open(path) as store:
        workload = add_workload(store)
    with Store.open(path, create=False) as store:
        assert store.workloads.get(workload).name == "conv"
        assert store.where == str(path)
        assert store.notice is None


def test_the_default_is_in_the_users_data_directory_or_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINTUNE_RECORDS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Store.default_location() == "/data/kintune/records.sqlite"
    monkeypatch.setenv("KINTUNE_RECORDS", "elsewhere.sqlite")
    assert Store.default_location() == "elsewhere.sqlite"


def test_the_mark_beside_a_file_may_be_read_by_all_and_written_by_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Store.open(tmp_path / "records.sqlite").close()
    finally:
        os.umask(before)
    assert (tmp_path / "records.sqlite-mark").stat().st_mode & 0o777 == 0o644


def test_a_url_names_the_same_file_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(f"sqlite:///{path}") as store:
        store.blobs.put(b"data")
    with Store.open(path) as store:
        assert store.counts().blobs == 1


def test_a_place_that_no_file_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "File name too long" in opening("a" * 300)
    assert "no such file" in opening("~no such user.sqlite", create=False)
    assert "neither a path nor the URL of a database" in opening("postgresql://host:port/tuning")
    assert not Store.are_at("a" * 300)
    assert not Store.are_at("~no such user.sqlite")


def test_records_may_be_where_a_file_is_or_at_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.sqlite"
    assert not Store.are_at(str(path))
    path.touch()
    assert Store.are_at(str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.are_at("~/records.sqlite")
    assert Store.are_at("postgresql://host/tuning")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "a directory" in opening(tmp_path)


def test_a_missing_file_is_refused_when_it_may_not_be_created(tmp_path: Path) -> None:
    assert "no such file" in opening(tmp_path / "records.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"hello, world\n" * 100, b"S", b"SQLite format 3\0", b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(content)
    said = opening(path)
    assert "not a database" in said or f"cut short ({len(content)} bytes are left)" in said
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("pages", [3, 0x04030201])
@pytest.mark.parametrize(("page", "size"), [(1, 65536), (512, 512), (4096, 4096)])
def test_a_file_with_fewer_pages_than_it_tells_of_is_cut_short(
    tmp_path: Path, page: int, size: int, pages: int
) -> None:
    path = tmp_path / "records.sqlite"
    header = b"SQLite format 3\0" + page.to_bytes(2, "big")
    path.write_bytes((header.ljust(28, b"\0") + pages.to_bytes(4, "big")).ljust(2 * size, b"\0"))
    assert f"cut short ({2 * size} bytes of {pages * size} are left)" in opening(path)


@pytest.mark.parametrize("table", ["other (id INTEGER)", "meta (key TEXT, value TEXT)"])
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path, table: str) -> None:
    path = tmp_path / "app.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    connection.close()
    before = path.read_bytes()
    assert "a database, but not one of Kintune" in opening(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as store, store.transaction() as connection:
        row = sealed(meta, key="schema_version", value=str(SCHEMA_VERSION + 1))
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(**row))
    said = opening(path)
    assert f"its schema is {SCHEMA_VERSION + 1}, this one reads {SCHEMA_VERSION}" in said
    assert f"written by Kintune {__version__} " in said
    assert f"update Kintune to version {__version__}, or" in said
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'written_by'")
        connection.commit()
    said = opening(path)
    assert "written by another version of Kintune (" in said
    assert "update Kintune, or" in said


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be opened (File exists)" in opening(tmp_path / "file" / "records.sqlite")
    assert "cannot be opened (No such file or directory)" in opening("/proc/nowhere/records.sqlite")


def test_without_a_place_records_are_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINTUNE_RECORDS", str(tmp_path / "mine.sqlite"))
    Store.open().close()
    assert (tmp_path / "mine.sqlite").exists()


def test_a_file_without_permission_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.sqlite"
    Store.open(path).close()
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(StorageError, match="may not be written"):
        Store.open(path)


@pytest.mark.parametrize(
    ("url", "said"),
    [("mysql://host/db", "cannot be kept in mysql"), ("://", "neither a path nor the URL"), ("nosuch://x", "nosuch")],
)
def test_another_kind_of_database_is_refused(url: str, said: str) -> None:
    assert said in opening(url)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in opening("postgresql+nosuchdriver://user:secret@host/db")


def test_an_interrupt_inside_a_transaction_takes_it_back(tmp_path: Path) -> None:
    def write(store: Store) -> None:
        with store.transaction():
            store.blobs.put(b"data")
            raise KeyboardInterrupt

    with Store.open(tmp_path / "records.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            write(store)
        assert store.counts().blobs == 0
        store.blobs.put(b"data")
        assert store.counts().blobs == 1


def test_a_reader_sees_one_state_while_another_store_writes(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as writer, Store.open(path) as reader:
        with reader.snapshot():
            assert reader.counts().blobs == 0
            writer.blobs.put(b"data")
            assert reader.counts().blobs == 0
        assert reader.counts().blobs == 1


def test_a_second_writer_that_waited_long_enough_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as first, Store.open(path, busy_seconds=0) as second:
        with first.transaction(), pytest.raises(StorageError, match="another process keeps it locked"):
            second.blobs.put(b"data")
        second.blobs.put(b"data")
        assert first.counts().blobs == 1
