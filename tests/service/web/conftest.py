from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from fastapi.testclient import TestClient

from kintune.service.web.application_state import ApplicationState
from tests.support.web_service import browser_of, client_of


@pytest.fixture
def browser(application: ApplicationState) -> Iterator[TestClient]:
    """Somebody at this machine, without a token."""
    with browser_of(application) as client:
        yield client


@pytest.fixture
def client(application: ApplicationState, browser: TestClient) -> Callable[..., TestClient]:
    """A client with a token: `client("anna")`, `client("anna", scope=Scope.READ, quota=Quota(jobs=1), days=1.0)`."""
    return partial(client_of, application, browser)


@pytest.fixture(autouse=True)
def narrow_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this machine compute in bytes and not in bfloat16, whatever it is."""
    extensions = frozenset({"avx2", "avx512vnni"})
    monkeypatch.setattr("kintune.service.web.application_state.host_extensions", lambda: extensions)
