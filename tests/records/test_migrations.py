"""Records of an earlier schema are brought up to date when they are opened, whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, delete, inspect, text, update

import kintune
from kintune.errors import RecordsError
from kintune.records import Store
from kintune.records.integrity import sealed
from kintune.records.migrations import STEPS
from kintune.records.schema import SCHEMA_VERSION, meta
from kintune.testing.records import add_workload
from tests.support.postgres import empty_schema

OLD = Path(__file__).parents[1] / "support" / "old_databases"


def old_records(folder: Path, schema: int = 1) -> Path:
    """Records of an earlier schema, made of its statements."""
    path = folder / "old.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((OLD / f"records_{schema}.sql").read_text())
    return path


def said(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, value FROM meta"))


def tables(path: Path) -> dict[str, object]:
    """Tables, columns, keys and indices of a database."""
    engine = create_engine(f"sqlite:///{path}")
    try:
        seen = inspect(engine)
        return {
            name: (
                sorted((column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)),
                seen.get_pk_constraint(name)["constrained_columns"],
                sorted(str(key) for key in seen.get_foreign_keys(name)),
                sorted(str(index) for index in seen.get_indexes(name)),
            )
            for name in sorted(seen.get_table_names())
        }
    finally:
        engine.dispose()


def test_every_schema_before_this_one_has_a_step_and_a_database_to_try_it_on() -> None:
    assert sorted(STEPS) == list(range(1, SCHEMA_VERSION))
    assert sorted(path.name for path in OLD.glob("records_*.sql")) == [f"records_{schema}.sql" for schema in STEPS]


@pytest.mark.parametrize("schema", STEPS)
def test_older_records_keep_what_they_hold(tmp_path: Path, schema: int) -> None:
    path = old_records(tmp_path, schema)
    with Store.open(path, create=False) as store:
        (run,) = store.runs.list()
        assert (run.run_id, run.model_name, run.state.value) == ("af36d3770c1e", "small", "finished")
        assert (store.counts().measurements, store.counts().events) == (8, 33)
        assert store.check() == []
        assert store.notice is None
    assert said(path) == {
        "format": "kintune-records",
        "schema_version": str(SCHEMA_VERSION),
        "written_by": kintune.__version__,
    }


@pytest.mark.parametrize("schema", STEPS)
def test_their_tables_are_those_of_new_records(tmp_path: Path, schema: int) -> None:
    path = old_records(tmp_path, schema)
    Store.open(path).close()
    Store.open(tmp_path / "new.sqlite").close()
    assert tables(path) == tables(tmp_path / "new.sqlite")


def test_what_is_up_to_date_is_not_written(tmp_path: Path) -> None:
    path = old_records(tmp_path)
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        commits = connection.execute("PRAGMA user_version").fetchone()
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == commits


def test_a_step_that_fails_leaves_the_records_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_records(tmp_path)
    before = said(path)

    def half(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))

    steps = dict(STEPS)
    monkeypatch.setattr("kintune.records.migrations.STEPS", {**steps, 1: half})
    with pytest.raises(Exception, match="nowhere"):
        Store.open(path)
    assert said(path) == before
    assert "half" not in tables(path)
    monkeypatch.setattr("kintune.records.migrations.STEPS", steps)
    with Store.open(path) as store:
        assert store.counts().measurements == 8


def test_records_of_a_newer_version_say_which_one_to_install(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as store, store.transaction() as connection:
        for key, value in {"schema_version": str(SCHEMA_VERSION + 1), "written_by": "9.1.0"}.items():
            row = sealed(meta, key=key, value=value)
            connection.execute(update(meta).where(meta.c.key == key).values(**row))
    with pytest.raises(RecordsError) as caught:
        Store.open(path)
    told = f"written by Kintune 9.1.0 (its schema is {SCHEMA_VERSION + 1}, this one reads {SCHEMA_VERSION})"
    assert told in str(caught.value)
    assert "update Kintune to version 9.1.0" in str(caught.value)


@pytest.fixture
def old_server() -> Iterator[str]:
    """Records of schema 1 on a server: it has the tables of schema 2, and says less in `meta`."""
    with empty_schema() as url:
        with Store.open(url) as store:
            add_workload(store)
            with store.transaction() as connection:
                connection.execute(delete(meta).where(meta.c.key == "written_by"))
                row = sealed(meta, key="schema_version", value="1")
                connection.execute(update(meta).where(meta.c.key == "schema_version").values(**row))
        yield url


@pytest.mark.needs("postgresql")
def test_a_server_is_upgraded_too(old_server: str) -> None:
    with Store.open(old_server) as store:
        assert store.counts().workloads == 1
        assert store.check() == []
        with store.snapshot() as connection:
            found = dict(row[:2] for row in connection.execute(text("SELECT key, value FROM meta")))
    assert (found["schema_version"], found["written_by"]) == (str(SCHEMA_VERSION), kintune.__version__)
