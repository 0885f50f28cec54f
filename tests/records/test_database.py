"""What is said of a server's errors, and what SQLite is taught."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL

from kintune.errors import RecordsError, StorageError, StorageFull
from kintune.records import Store, sqlite
from kintune.records.database import DatabaseSystem
from kintune.records.integrity import Damage, sealed
from kintune.records.schema import workloads
from kintune.records.sqlite import SQLiteFile


class Refused(Exception):
    """An error of a driver, with the code of the SQL standard."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("two\nlines")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        ("53100", StorageFull, "no space left"),
        ("23505", RecordsError, "refused a record: two lines"),
        ("08006", StorageError, "two lines"),
        ("", StorageError, "two lines"),
    ],
)
def test_an_error_of_a_server_is_told_by_its_code(state: str, kind: type[Exception], said: str) -> None:
    error = DatabaseSystem(URL.create("postgresql", host="host")).explain(Refused(state))
    assert type(error) is kind
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(("given", "stored"), [(3, "3.0"), (-0.0, "0.0"), (-2.5, "-2.5"), (True, "1.0")])
def test_a_number_is_sealed_as_a_database_gives_it_back(given: float, stored: str) -> None:
    row = sealed(workloads, digest="d", name="n", operator="o", signature="s", flops=given, blob="b")
    assert repr(row["flops"]) == stored
    assert row == sealed(workloads, digest="d", name="n", operator="o", signature="s", flops=float(stored), blob="b")


def test_small_letters_are_of_all_alphabets() -> None:
    with Store.open(":memory:") as store, store.snapshot() as connection:
        assert connection.scalar(text("SELECT lower('ÉLAN Ω x')")) == "élan ω x"
        assert connection.scalar(text("SELECT lower(5)")) == 5
        assert connection.scalar(text("SELECT lower(NULL)")) is None


def test_each_transaction_that_writes_counts_as_one(tmp_path: Path) -> None:
    def count(store: Store) -> int:
        with store.snapshot() as connection:
            return int(connection.scalar(text("SELECT user_version FROM pragma_user_version")) or 0)

    with Store.open(tmp_path / "records.sqlite") as store:
        before = count(store)
        for number in range(1, 4):
            store.blobs.put(bytes([number]))
            assert count(store) == before + number
    mark = (tmp_path / "records.sqlite-mark").read_bytes()
    assert int(mark[:20]) == before + 3


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.touch()
    with Store.open(path) as store:
        assert store.check() == []


def test_the_first_damage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.sqlite"
    Store.open(path).close()
    found = [Damage("database", str(path), "a page\nis gone")]
    monkeypatch.setattr(SQLiteFile, "structural_damage", lambda *_: found)
    with pytest.raises(RecordsError, match=r"is damaged \(a page is gone\)"):
        Store.open(path)
    found.append(Damage("database", str(path), "another"))
    with pytest.raises(RecordsError, match=r"is damaged \(a page is gone\)"):
        Store.open(path)


def test_what_is_not_the_drivers_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(":memory:") as store, store.snapshot() as connection:

        def fail(*_: object) -> None:
            raise ValueError("ours")

        monkeypatch.setattr(connection.dialect, "do_execute", fail)
        with pytest.raises(ValueError, match="ours"):
            store.workloads.list()
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("line", "commits"),
    [(b"%020d" % 7, 7), (b"%020d" % 0, 0), (b"x" * 20, None), (b"", None), (b"%019d " % 7, None)],
)
def test_a_mark_is_read_only_where_it_matches_its_checksum(tmp_path: Path, line: bytes, commits: int | None) -> None:
    mark = sqlite.CommitMark(tmp_path / "mark")
    try:
        for written, found in (
            (sqlite._line(line), commits),
            (sqlite._line(line) + b" ", None),
            (line + b" 00000000\n", None),
        ):
            (tmp_path / "mark").write_bytes(written)
            assert mark.read() == found
        mark.write(9)
        assert mark.read() == 9
    finally:
        mark.close()
