"""Requests made up from the API's own description, sensible and senseless: no answer is a 500."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from starlette.applications import Starlette
from starlette.testclient import httpx

from kintune.service.access import Scope
from kintune.service.orchestrator.events import Starting
from tests.support.examples import compiled_examples
from tests.support.service_users import upload

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_WORDS = st.text(max_size=40).map(lambda text: text.replace("/", "").replace("\0", "")).filter(bool)


def values(schema: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the description allows, and at times what it does not."""
    return st.one_of(_allowed(schema, parts), _allowed(schema, parts), _allowed(schema, parts), _ANYTHING)


def _allowed(schema: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _allowed(parts[schema["$ref"].rsplit("/", 1)[-1]], parts)
    if "anyOf" in schema:
        return st.one_of([values(each, parts) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            return st.integers(int(schema.get("minimum", -5)), int(schema.get("maximum", 1 << 40)))
        case "number":
            return st.floats(0.001, 100.0)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema.get("items", {}), parts), max_size=4)
        case "null":
            return st.none()
        case "string":
            return st.text(max_size=min(40, schema.get("maxLength", 40)))
        case "object":
            named = {name: values(each, parts) for name, each in schema.get("properties", {}).items()}
            needed = set(schema.get("required", ()))
            return st.fixed_dictionaries(
                {name: each for name, each in named.items() if name in needed},
                optional={name: each for name, each in named.items() if name not in needed},
            )
    return _ANYTHING


@pytest.fixture
def described(browser: TestClient) -> dict[str, Any]:
    description: dict[str, Any] = browser.get("/openapi.json").json()
    return description


def test_what_the_api_does_not_have_is_answered_in_json_beside_pages(browser: TestClient) -> None:
    """The portal is mounted at the root, and would answer with a page that there is no such page."""
    browser.app.mount("/", Starlette(routes=[]))  # type: ignore[attr-defined]
    for method, path, status in (
        ("PUT", "/api/v1/tokens", 405), ("TRACE", "/api/v1/me", 405), ("CONNECT", "/api/v1/me", 405),
        ("GET", "/api/v1/nothing", 404), ("POST", "/api/v1/jobs//cancel", 404),
    ):  # fmt: skip
        answer = browser.request(method, path)
        assert (answer.status_code, "allow" in answer.headers) == (status, status == 405), (method, path)
        assert answer.json()["kind"] == "InputError"


def test_a_body_that_is_no_text_is_wrong_as_one_that_is_no_json_is(browser: TestClient) -> None:
    for body in (b"\xff", b"{", b"[" * 100_000):
        answer = browser.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422


@pytest.mark.drawn  # all requests are drawn in `make test-slow`
def test_no_request_is_answered_with_a_500(browser: TestClient, described: dict[str, Any]) -> None:
    model = upload(browser)
    job = browser.post("/api/v1/jobs", json={"model": model, "wanted": {"shapes": {"x": [1, 4]}}}).json()["id"]
    parts = described["components"]["schemas"]
    operations = [
        (method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if not path.endswith("/events")
    ]
    digest = browser.get(f"/api/v1/models/{model}").json()["sha256"]
    known = {"model": str(model), "job": job, "token": "1", "digest": digest}

    @compiled_examples(250, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def play(data: st.DataObject) -> None:
        method, path, operation = data.draw(st.sampled_from(operations))
        query: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for parameter in operation.get("parameters", ()):
            name, where = parameter["name"], parameter["in"]
            if where == "path":
                value = data.draw(st.just(known.get(name, "1")) | _WORDS)
                path = path.replace("{" + name + "}", value)
            elif where == "query" and data.draw(st.booleans()):
                query[name] = data.draw(values(parameter["schema"], parts))
            elif where == "header" and data.draw(st.booleans()):
                headers[name] = data.draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=200))
        body: dict[str, Any] = {}
        if "requestBody" in operation:
            schema = next(iter(operation["requestBody"]["content"].values()))["schema"]
            sent = "json" if data.draw(st.booleans()) else "content"
            body = {sent: data.draw(values(schema, parts) if sent == "json" else st.binary(max_size=200))}
        elif path == "/api/v1/models" and method == "post":
            body = {"content": data.draw(st.binary(max_size=0))}
        try:
            answer = browser.request(method, path, params=query, headers=headers, **body)
        except (ValueError, TypeError, httpx.InvalidURL):
            return  # it cannot even be sent
        assert answer.status_code < 500 or path in ("/readyz",), (method, path, query, body, answer.text)
        if answer.status_code >= 400 and path.startswith("/api/"):
            assert answer.headers["content-type"].startswith("application/json")

    play()


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/api/docs"])
def test_what_describes_the_service_takes_a_token_once_there_is_one(
    browser: TestClient, client: Callable[..., TestClient], path: str
) -> None:
    assert browser.get(path).status_code == 200
    anna = client("anna", scope=Scope.READ)
    assert browser.get(path).status_code == 401
    assert anna.get(path).status_code == 200


def test_the_page_of_the_api_names_every_request_and_loads_nothing(browser: TestClient) -> None:
    answer = browser.get("/api/docs")
    document = browser.get("/openapi.json").json()
    for path in document["paths"]:
        assert path in answer.text
    assert "src=" not in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self' 'nonce-" in policy
    assert browser.get("/healthz").headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert browser.get("/api/docs").headers["Content-Security-Policy"] != policy


def test_a_service_says_what_its_orchestrator_waits_for(browser: TestClient) -> None:
    live_state = browser.app.state.live_state  # type: ignore[attr-defined]
    assert browser.get("/readyz").json()["problems"] == ["the orchestrator does not answer"]
    waits = "the orchestrator waits for its cores, which process 12 holds"
    live_state.update(Starting(waits))
    answer = browser.get("/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (503, [waits])
    live_state.update(Starting(""))
    assert browser.get("/readyz").status_code == 200
    live_state.forget_what_runs()
    assert browser.get("/readyz").status_code == 503
