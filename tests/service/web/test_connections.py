from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from kintune.service.web import connections, middleware
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.connections import MOST_HEADER_BYTES, ImpatientProtocol

PATIENCE_S = 60.0
"""How long a test waits for what must come; only a test that fails waits that long."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what a body holds."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serve() -> Iterator[Callable[[ASGIApp], int]]:
    """Serves an application in a thread; returns the port."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(app: ASGIApp) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=ImpatientProtocol,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            log_config=None,
            lifespan="off",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        running.append((server, thread))
        return int(listener.getsockname()[1])

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(PATIENCE_S)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    data = b""
    try:
        while part := connection.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-Half: ", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHos"]
)
def test_a_request_whose_headers_do_not_come_in_time_is_closed(
    serve: Callable[[ASGIApp], int], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.2)
    with closing(connect(serve(echo))) as connection:
        connection.sendall(sent)
        assert read_all(connection).count(b"200 OK") == sent.count(b"\r\n\r\n")


def test_a_request_that_comes_in_pieces_is_answered(serve: Callable[[ASGIApp], int]) -> None:
    with closing(connect(serve(echo))) as connection:
        for piece in (
            b"POST / HTTP/1.1\r\nHost: a\r\n",
            b"Content-Length: 4\r\nConnection: close\r\n\r\n",
            b"ab",
            b"cd",
        ):
            connection.sendall(piece)
        assert read_all(connection).endswith(b"\r\n\r\nabcd")


def test_headers_that_are_too_long_are_refused(serve: Callable[[ASGIApp], int], application: ApplicationState) -> None:
    port = serve(make_app(application))
    for size in (MOST_HEADER_BYTES, 1 << 20):
        with closing(connect(port)) as connection:
            with contextlib.suppress(OSError):  # the longer one is closed before it has come
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * size + b"\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
            status = read_all(connection)[:12]
            assert status in (b"HTTP/1.1 431", b"HTTP/1.1 400", b""), size


def test_a_body_that_comes_too_slowly_is_refused(
    serve: Callable[[ASGIApp], int], application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "SLOWEST_S", 0.2)
    port = serve(make_app(application))
    for path in (b"/api/v1/models", b"/api/v1/jobs"):
        with closing(connect(port)) as connection:
            connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n{")
            answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"comes too slowly" in answer


@pytest.mark.parametrize("path", [b"/api/v1/models", b"/api/v1/inputs", b"/api/v1/jobs"])
def test_a_declared_length_that_is_too_large_is_refused_before_the_body_is_sent(
    serve: Callable[[ASGIApp], int], application: ApplicationState, path: bytes
) -> None:
    with closing(connect(serve(make_app(application)))) as connection:
        connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000000\r\n\r\n")
        answer = b""
        while b"larger than" not in answer:
            part = connection.recv(1 << 16)
            assert part, answer
            answer += part
        assert answer.startswith(b"HTTP/1.1 413")
