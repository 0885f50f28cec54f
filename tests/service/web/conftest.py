from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from kintune.service.access import Quota, Scope
from kintune.service.settings import ServiceSettings
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState

NOW = 1_000_000.0


@pytest.fixture
def application(tmp_path: Path) -> Iterator[ApplicationState]:
    data = tmp_path / "data"
    data.mkdir()
    with ApplicationState(ServiceSettings(data=str(data)), lambda: NOW) as opened:
        yield opened


@pytest.fixture
def browser(application: ApplicationState) -> Iterator[TestClient]:
    """Somebody at this machine, without a token."""
    with TestClient(make_app(application), base_url="http://127.0.0.1:8190", client=("127.0.0.1", 50000)) as client:
        yield client


@pytest.fixture
def client(application: ApplicationState, browser: TestClient) -> Callable[..., TestClient]:
    """A client with a token: `client("anna")`, `client("anna", scope=Scope.READ, quota=Quota(jobs=1), days=1.0)`."""

    def make(
        name: str, *, scope: Scope = Scope.SUBMIT, quota: Quota | None = None, days: float | None = None
    ) -> TestClient:
        names = {user.name for user in application.users.users()}
        user = application.users.user(name) if name in names else application.users.add_user(name, NOW, quota)
        token = application.users.add_token(user, "", scope, NOW, days).text
        return TestClient(
            browser.app,
            base_url="http://127.0.0.1:8190",
            client=("127.0.0.1", 50000),
            headers={"Authorization": f"Bearer {token}"},
        )

    return make
