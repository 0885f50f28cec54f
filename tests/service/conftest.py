from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kintune.records.database import Database
from kintune.service.access import Quota, Scope, Visitor
from kintune.service.database import open_database
from kintune.service.people import People
from kintune.testing.records import postgres_url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind that a service may have."""
    location = str(tmp_path / "service.sqlite") if request.param == "sqlite" else postgres_url(request)
    with closing(open_database(location)) as opened:
        yield opened


@pytest.fixture
def anna(database: Database) -> Visitor:
    return visitor(database, "anna")


@pytest.fixture
def boris(database: Database) -> Visitor:
    return visitor(database, "boris")


def visitor(database: Database, name: str, scope: Scope = Scope.SUBMIT, quota: Quota | None = None) -> Visitor:
    """Somebody with a token."""
    people = People(database)
    user = people.add_user(name, 100.0, quota)
    return people.visitor(people.add_token(user, "", scope, 100.0, None).text, 200.0)
