"""Lines over WebSockets where something is wrong; what goes right is tested with the gate."""

from __future__ import annotations

import asyncio
import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from kintune.errors import InputError
from kintune.workers.fleet.sockets import call


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        code = int(self.path.strip("/"))
        self.send_response(code)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"go away!\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def come_in(url: str) -> None:
    async def coming() -> None:
        async with call(url, "kt_token"):
            raise AssertionError("nobody should have come in")

    asyncio.run(coming())


@pytest.mark.parametrize("code", [401, 403])
def test_who_is_refused_need_not_try_again(web: str, code: int) -> None:
    with pytest.raises(InputError, match="the service refuses this machine: go away!"):
        come_in(f"{web}/{code}")


@pytest.mark.parametrize("code", [200, 404, 500, 503])
def test_what_does_not_work_now_may_work_later(web: str, code: int) -> None:
    """A 404 comes from a proxy that does not know the service at the moment."""
    with pytest.raises(OSError, match=f"{code} answered {code} "):
        come_in(f"{web}/{code}")


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"."):
            come_in(f"ws://127.0.0.1:{taken.getsockname()[1]}")


def test_what_talks_another_language() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\x05\x00 I am no web server\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(OSError, match=r"."):
            come_in(f"ws://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_what_is_no_address() -> None:
    with pytest.raises(InputError, match="is no address of a service"):
        come_in("http://here")


@pytest.mark.parametrize("proxy", ["ftp://here", "socks5h://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_told_in_a_line(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ws_proxy", proxy)
    with pytest.raises((OSError, InputError), match=r"."):
        come_in("ws://127.0.0.1:9")
