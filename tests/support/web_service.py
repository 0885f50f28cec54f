"""A service's web application in this process, and those who ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi.testclient import TestClient

from kintune.service.access import Quota, Scope
from kintune.service.settings import ServiceSettings
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState

__all__ = ["NOW", "browser_of", "client_of", "opened_application"]

NOW = 1_000_000.0


@contextmanager
def opened_application(folder: Path) -> Iterator[ApplicationState]:
    """A new service whose data is in `folder`."""
    data = folder / "data"
    data.mkdir()
    with ApplicationState(ServiceSettings(data=str(data)), lambda: NOW) as opened:
        yield opened


def browser_of(application: ApplicationState) -> TestClient:
    """Somebody at the service's machine, without a token; a context manager."""
    return TestClient(make_app(application), base_url="http://127.0.0.1:8190", client=("127.0.0.1", 50000))


def client_of(
    application: ApplicationState,
    browser: TestClient,
    name: str,
    *,
    scope: Scope = Scope.SUBMIT,
    quota: Quota | None = None,
    days: float | None = None,
) -> TestClient:
    """A client with a token of the user `name`, who is added when there is none."""
    names = {user.name for user in application.users.users()}
    user = application.users.user(name) if name in names else application.users.add_user(name, NOW, quota)
    token = application.users.add_token(user, "", scope, NOW, days).text
    return TestClient(
        browser.app,
        base_url="http://127.0.0.1:8190",
        client=("127.0.0.1", 50000),
        headers={"Authorization": f"Bearer {token}"},
    )
