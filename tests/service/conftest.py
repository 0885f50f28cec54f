from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.schema import CreateSchema, DropSchema

from kintune.records.database import Database
from kintune.service.access import Visitor
from kintune.service.database import open_database
from tests.support.service_users import visitor

POSTGRES = "KINTUNE_TEST_POSTGRES"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind that a service may have."""
    if request.param == "sqlite":
        with closing(open_database(str(tmp_path / "service.sqlite"))) as opened:
            yield opened
        return
    with schema_of_its_own(os.environ[POSTGRES]) as location, closing(open_database(location)) as opened:
        yield opened


@contextmanager
def schema_of_its_own(url: str) -> Iterator[str]:
    """A schema of the server that nobody else uses, as the URL of a database."""
    name = f"test_{secrets.token_hex(6)}"
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(CreateSchema(name))
        yield (
            make_url(url).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
        )
        with engine.begin() as connection:
            connection.execute(DropSchema(name, cascade=True))
    finally:
        engine.dispose()


@pytest.fixture
def anna(database: Database) -> Visitor:
    return visitor(database, "anna")


@pytest.fixture
def boris(database: Database) -> Visitor:
    return visitor(database, "boris")
