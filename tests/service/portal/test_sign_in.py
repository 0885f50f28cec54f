"""Doors without a browser: who gets a cookie, and whose pages are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from kintune.service.access import Scope, Unauthorized
from kintune.service.portal.frame import PageContext
from kintune.service.portal.sign_in import router
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import COOKIE

OWN = {"Origin": "http://127.0.0.1:8190", "Sec-Fetch-Site": "same-origin"}


def token(application: ApplicationState, scope: Scope) -> str:
    return application.users.add_token(application.users.add_user("anna", 1.0), "", scope, 1.0, None).text


@pytest.mark.parametrize(
    ("scope", "goes_to", "signed_in"), [(Scope.READ, "/", True), (Scope.MACHINE, "/sign-in?wrong=1", False)]
)
def test_a_machine_does_not_sign_in(application: ApplicationState, scope: Scope, goes_to: str, signed_in: bool) -> None:
    app = make_app(application)
    app.include_router(router)
    client = TestClient(app, base_url="http://127.0.0.1:8190", follow_redirects=False)
    answer = client.post("/sign-in", data={"token": token(application, scope)}, headers=OWN)
    assert (answer.status_code, answer.headers["Location"]) == (303, goes_to)
    assert (COOKIE in answer.cookies) is signed_in


@pytest.mark.parametrize("scope", [Scope.READ, Scope.MACHINE])
def test_a_machine_sees_no_pages(application: ApplicationState, scope: Scope) -> None:
    cookie = (b"cookie", f"{COOKIE}={token(application, scope)}".encode())
    nothing: Any = SimpleNamespace()
    context = PageContext(
        application, nothing, nothing, Request({"type": "http", "method": "GET", "headers": [cookie]})
    )
    if scope is Scope.MACHINE:
        with pytest.raises(Unauthorized):
            _ = context.visitor
    else:
        assert context.visitor.name == "anna"
