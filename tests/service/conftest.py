from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kintune.records.database import Database
from kintune.service.access import Visitor
from kintune.service.database import open_database
from kintune.service.web.application_state import ApplicationState
from tests.support.postgres import empty_schema
from tests.support.service_users import visitor
from tests.support.web_service import opened_application


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind that a service may have."""
    if request.param == "sqlite":
        with closing(open_database(str(tmp_path / "service.sqlite"))) as opened:
            yield opened
        return
    with empty_schema() as location, closing(open_database(location)) as opened:
        yield opened


@pytest.fixture
def application(tmp_path: Path) -> Iterator[ApplicationState]:
    """A new service's web part, in this process."""
    with opened_application(tmp_path) as opened:
        yield opened


@pytest.fixture
def anna(database: Database) -> Visitor:
    return visitor(database, "anna")


@pytest.fixture
def boris(database: Database) -> Visitor:
    return visitor(database, "boris")
