"""Connections over WebSockets: how agents reach a front through networks, proxies and TLS.  RFC 6455."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import TypeVar
from weakref import WeakKeyDictionary

from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.http11 import Request, Response

from kintune.errors import InputError, KintuneError, StorageError
from kintune.workers.fleet.transport import Transport

__all__ = ["PATH", "SocketTransport", "call", "open_door"]

PATH = "/api/v1/agents"
"""The path of the URL at which agents connect."""

_MOST = 1 << 28  # bytes of a message: a stage with all of its programs
_OPEN_S = 20.0
Guest = TypeVar("Guest")

_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_ELSEWHERE = f"agents come in at {PATH}"  # what our own listener says of other paths


class SocketTransport:
    """Implements `kintune.workers.fleet.transport.Transport`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """Send a message."""
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from error

    async def receive(self) -> bytes | None:
        """Return the next message; None once the other end has hung up, or sent something that is not a message."""
        try:
            data = await self._connection.recv()
        except ConnectionClosed:
            return None
        if isinstance(data, str):
            await self._connection.close()
            return None
        return data

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()


@contextlib.asynccontextmanager
async def call(url: str, token: str) -> AsyncIterator[Transport]:
    """A connection to the front at this address (`ws://` or `wss://`).

    Raises:
        InputError: it does not take the token, or is nothing that agents can talk to, or the way to it is a proxy that
            cannot be used.
        OSError: there is no way to it for now.
    """
    headers = {"Authorization": f"Bearer {token}"}
    try:
        connection = await connect(
            url, additional_headers=headers, compression=None, max_size=_MOST, open_timeout=_OPEN_S
        )
    except InvalidURI as error:
        raise InputError(f"{url}: is no address of a service: {error}") from error
    except InvalidStatus as error:
        code, text = error.response.status_code, bytes(error.response.body or b"").decode(errors="replace").strip()
        if code in _REFUSED or text == _ELSEWHERE:
            raise InputError(
                f"{url}: the service refuses this machine: {text[:200] or HTTPStatus(code).phrase}"
            ) from error
        raise ConnectionError(f"{url} answered {code} {error.response.reason_phrase}".rstrip()) from error
    except ImportError as error:  # a package that a proxy named by the environment would need
        raise InputError(f"{url}: {error}") from error
    except (WebSocketException, asyncio.TimeoutError, EOFError) as error:
        raise ConnectionError(str(error) or "it did not answer in time") from error
    try:
        yield SocketTransport(connection)
    finally:
        await connection.close()


def open_door(
    host: str,
    port: int,
    check: Callable[[str], Guest],
    attend: Callable[[SocketTransport, Guest], Awaitable[None]],
) -> AbstractAsyncContextManager[Server]:
    """Let agents in, at `PATH` of this address, until the end of the block.

    `check` returns whose a token is, or raises KintuneError if the token is not valid; it is called in a thread.
    `attend` is given the connection and what `check` returned; the connection is closed when it returns.
    """

    async def ask(connection: ServerConnection, request: Request) -> Response | None:
        if request.path.partition("?")[0] != PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, f"{_ELSEWHERE}\n")
        try:
            guest = await asyncio.to_thread(check, _token(request.headers))
        except StorageError:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "nobody can be let in now; ask again later\n")
        except KintuneError as error:
            return connection.respond(HTTPStatus.UNAUTHORIZED, f"{error}\n")
        guests[connection] = guest
        return None

    async def handle(connection: ServerConnection) -> None:
        await attend(SocketTransport(connection), guests[connection])

    guests: WeakKeyDictionary[ServerConnection, Guest] = WeakKeyDictionary()
    return serve(
        handle, host, port, process_request=ask, compression=None, max_size=_MOST, open_timeout=_OPEN_S,
        server_header=None,
    )  # fmt: skip


def _token(headers: Headers) -> str:
    kind, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
