from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from kintune.errors import InputError
from kintune.service.client_connection import TIMEOUT, ServiceConnection, ServiceError


def answered_by(answer: Callable[[httpx.Request], httpx.Response]) -> closing[ServiceConnection]:
    """A connection to something that answers like this."""
    return closing(ServiceConnection("http://service", None, httpx.MockTransport(answer)))


def answering(status: int, **more: Any) -> closing[ServiceConnection]:
    """A connection to something that answers everything like this."""
    return answered_by(lambda request: httpx.Response(status, **more))


def asks(connection: ServiceConnection) -> tuple[Callable[[], Any], ...]:
    """Every way to ask for something."""

    def receive() -> None:
        with connection.receiving("/api/v1/jobs/j1/log", "text/plain", TIMEOUT):
            pass

    return lambda: connection.ask("GET", "/api/v1/jobs/j1"), receive, lambda: list(connection.events("/api/v1/jobs/j1"))


@pytest.mark.parametrize(
    "address", ["localhost:8190", "http://[::1", "ftp://host", "http://", "http://host:port", "service", "http://a b"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="is no address of a service; name it as http://HOST:PORT"):
        ServiceConnection(address, None, None)


@pytest.mark.parametrize("token", ["kt_\u00e4", "kt_\u2026", "kt_a\nkt_b", "kt a"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="characters that no token has"):
        ServiceConnection("http://127.0.0.1:9", token, None)


def test_an_address_may_have_a_path_and_a_token_a_line_end() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"jobs": []})

    with closing(ServiceConnection("https://host/kintune/", "kt_a\n", httpx.MockTransport(answer))) as connection:
        assert connection.ask("GET", "/api/v1/jobs") == {"jobs": []}
    assert str(seen[0].url) == "https://host/kintune/api/v1/jobs"
    assert seen[0].headers["Authorization"] == "Bearer kt_a"


def test_lists_are_read_page_by_page() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        begin, count = int(asked[-1].get("after", 0)), int(asked[-1]["limit"])
        ids = list(range(begin, min(begin + count, 450)))
        following = ids[-1] + 1 if len(ids) == count else None
        return httpx.Response(200, json={"jobs": [{"id": each} for each in ids], "next": following})

    with answered_by(answer) as connection:
        found = connection.pages("/api/v1/jobs", "jobs", 1000, {"state": "done"})
        assert [job["id"] for job in found] == list(range(450))
        assert [(each["state"], each["limit"], each.get("after")) for each in asked] == [
            ("done", "200", None),
            ("done", "200", "200"),
            ("done", "200", "400"),
        ]
        asked.clear()
        assert len(connection.pages("/api/v1/jobs", "jobs", 201)) == 201
        assert [each["limit"] for each in asked] == ["200", "1"]


def test_what_was_deleted_by_a_try_whose_answer_was_lost_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    answers = iter([httpx.Response(503), httpx.Response(404, json={"error": "there is no model 5"})])
    with answered_by(lambda request: next(answers)) as connection:
        assert connection.ask("DELETE", "/api/v1/models/5") is None


def test_a_file_is_sent_whole_with_every_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    (tmp_path / "net.onnx").write_bytes(b"network")
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.read())
        return httpx.Response(503 if len(sent) == 1 else 201, json={"id": 5})

    with answered_by(answer) as connection:
        assert connection.send_file("/api/v1/models", tmp_path / "net.onnx", params={"name": "net"}) == {"id": 5}
    assert sent == [b"network", b"network"]


def test_a_status_may_mean_that_there_is_nothing() -> None:
    with answering(404, json={"error": "there is no model"}) as connection:
        assert connection.ask("GET", "/api/v1/models/5", none_for=(404, 405)) is None
        with pytest.raises(InputError, match="there is no model"):
            connection.ask("GET", "/api/v1/models/5", none_for=(405,))


def test_a_service_that_has_moved_is_said_to_be_elsewhere() -> None:
    with answering(308, headers={"Location": "https://service/api/v1/jobs/j1"}) as connection:
        for ask in asks(connection):
            with pytest.raises(InputError, match="http://service has moved to https://service; name that address"):
                ask()


def test_another_server_is_said_to_be_no_service() -> None:
    said = "does not answer as a service of Kintune; is the address right"
    with answering(200, html="<p>Welcome</p>") as connection:
        for ask in asks(connection):
            with pytest.raises(ServiceError, match=said):
                ask()
    with answering(404, json={"detail": "Not Found"}) as connection:
        for ask in asks(connection):
            with pytest.raises(InputError, match=r"404 \(Not Found\)"):
                ask()


def test_who_has_no_valid_token_is_told_how_to_give_one() -> None:
    with answering(401, json={"error": "this takes a valid token"}) as connection:
        for ask in asks(connection):
            with pytest.raises(InputError, match=r"--token \(in Python token=...\) or \$KINTUNE_TOKEN"):
                ask()


def test_a_service_that_breaks_off_is_said_to_have_done_so() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("the line broke", request=request)

    with answered_by(answer) as connection:
        _, receive, _ = asks(connection)
        with pytest.raises(ServiceError, match=r"http://service closed the connection \(the line broke\); try again"):
            receive()
