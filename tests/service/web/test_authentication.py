from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from kintune.service.access import Scope, Unauthorized
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import COOKIE, visitor_of

OWN = {"Origin": "http://127.0.0.1:8190", "Sec-Fetch-Site": "same-origin"}
FOREIGN = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}


def test_while_nobody_has_a_token_this_machine_may_do_everything(browser: TestClient) -> None:
    me = browser.get("/api/v1/me").json()
    assert (me["name"], me["scope"]) == ("local", "admin")
    assert browser.get("/api/v1/users").status_code == 200


def test_from_the_first_token_on_everybody_needs_one(browser: TestClient, client: Callable[..., TestClient]) -> None:
    anna = client("anna")
    assert browser.get("/api/v1/me").status_code == 401
    assert anna.get("/api/v1/me").json()["name"] == "anna"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8190", "192.168.1.5:8190"])
def test_a_name_that_was_made_to_mean_this_machine_opens_nothing(browser: TestClient, host: str) -> None:
    assert browser.get("/api/v1/me", headers={"Host": host}).status_code == 401


def test_another_machine_needs_a_token(application: ApplicationState, browser: TestClient) -> None:
    other = TestClient(browser.app, base_url="http://127.0.0.1:8190", client=("192.168.1.5", 50000))
    assert other.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Forwarded-Proto"])
def test_what_a_proxy_here_passes_on_does_not_come_from_here(browser: TestClient, header: str) -> None:
    assert browser.get("/api/v1/me", headers={header: "127.0.0.1"}).status_code == 401


def test_another_site_cannot_use_that_somebody_sits_at_this_machine(browser: TestClient) -> None:
    assert browser.post("/api/v1/users", json={"name": "mallory"}, headers=FOREIGN).status_code == 403
    assert browser.post("/api/v1/users", json={"name": "anna"}, headers=OWN).status_code == 201
    assert browser.post("/api/v1/users", json={"name": "boris"}).status_code == 201  # no browser


@pytest.mark.parametrize("origin", ["http://[", "http://\xe9\u2100".encode().decode("latin-1"), "//"])
def test_an_origin_that_is_no_address_is_not_this_one(browser: TestClient, origin: str) -> None:
    sent = browser.post("/api/v1/users", json={"name": "mallory"}, headers={"Origin": origin.encode("latin-1")})
    assert sent.status_code == 403


@pytest.mark.parametrize(("query", "host"), [(b"a=\xff", b"127.0.0.1:8190"), (b"", b"[")])
def test_a_request_whose_address_is_no_text_is_not_from_here(
    application: ApplicationState, query: bytes, host: bytes
) -> None:
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": "GET", "path": "/api/v1/me",
        "query_string": query, "headers": [(b"host", host)], "client": ("127.0.0.1", 5), "server": ("evil", 8190),
    }  # fmt: skip
    with pytest.raises(Unauthorized):
        visitor_of(Request(scope), application)


def test_a_cookie_counts_only_for_requests_from_the_own_pages(
    browser: TestClient, client: Callable[..., TestClient]
) -> None:
    token = client("anna", scope=Scope.ADMIN).headers["Authorization"].removeprefix("Bearer ")
    browser.cookies.set(COOKIE, token)
    assert browser.get("/api/v1/me").json()["name"] == "anna"
    assert browser.post("/api/v1/users", json={"name": "mallory"}, headers=FOREIGN).status_code == 403
    assert browser.post("/api/v1/users", json={"name": "mallory"}).status_code == 403
    assert browser.post("/api/v1/users", json={"name": "boris"}, headers=OWN).status_code == 201


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer kt_" + "a" * 43, "Basic YTpi", "Bearer", "kt_x", ""])
def test_what_is_no_token_is_refused_alike(client: Callable[..., TestClient], browser: TestClient, header: str) -> None:
    client("anna")
    answer = browser.get("/api/v1/me", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "token" in answer.json()["error"]


def test_a_revoked_token_opens_nothing(application: ApplicationState, client: Callable[..., TestClient]) -> None:
    anna, boris = client("anna"), client("boris")
    application.users.revoke(application.users.tokens(application.users.user("anna"))[0].id, 0.0)
    assert anna.get("/api/v1/me").status_code == 401
    assert boris.get("/api/v1/me").status_code == 200


def test_an_expired_token_opens_nothing(application: ApplicationState, client: Callable[..., TestClient]) -> None:
    anna = client("anna", days=1.0)
    assert anna.get("/api/v1/me").status_code == 200
    application.now = lambda: 1_000_000.0 + 86_401.0
    assert anna.get("/api/v1/me").status_code == 401


def test_scopes(client: Callable[..., TestClient]) -> None:
    reader, submitter, admin = client("r", scope=Scope.READ), client("s"), client("a", scope=Scope.ADMIN)
    assert reader.get("/api/v1/jobs").status_code == 200
    assert reader.post("/api/v1/models", content=b"x").status_code == 403
    assert submitter.get("/api/v1/users").status_code == 403
    assert admin.get("/api/v1/users").status_code == 200
    assert {user["name"] for user in admin.get("/api/v1/users").json()} == {"r", "s", "a"}


def test_answers_tell_browsers_to_be_careful(browser: TestClient) -> None:
    headers = browser.get("/healthz").headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
