"""Middleware: limits the bytes of requests, and the time in which they come, and adds security headers to answers.

A framework reads a request's body before it checks who sends it, so what a stranger can make the service keep in memory
or on disk is limited here.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kintune.errors import KintuneError
from kintune.service.faces import COMMAND, FACE_HEADER, asked_by_command
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import visitor_of
from kintune.service.web.connections import MOST_HEADER_BYTES

__all__ = ["SLOWEST_BYTES_A_S", "SLOWEST_S", "LimitBodies", "SecurityHeaders", "declared_length"]

SLOWEST_S, SLOWEST_BYTES_A_S = 20.0, 4096
"""A body may be waited for so many seconds, and for one more for each so many bytes that have come."""

_SECOND_LOOK_S = 0.2
_MOST = 1 << 20
_AROUND = 1 << 20  # what a form adds to a file
_CLOSE = {"Connection": "close"}
_TOO_LARGE = "the request is larger than allowed"
_TOO_SLOW = (
    f"the body of the request comes too slowly; it must have {SLOWEST_BYTES_A_S} bytes for each second after the first "
    f"{SLOWEST_S:g}"
)
_STREAMED = ("/api/v1/models", "/api/v1/inputs")  # they count for themselves, and keep nothing in memory


class LimitBodies:
    """Limits a body to a megabyte, and files for the portal to what the visitor may upload; none may come too slowly.

    A length that a client declares is judged before the body is read.
    """

    def __init__(self, app: ASGIApp, application: ApplicationState) -> None:
        self._app = app
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, as long as its headers are short, and its body is small and comes fast enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked_by_command.set(Headers(scope=scope).get(FACE_HEADER) == COMMAND)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            said = f"the headers of a request may have {MOST_HEADER_BYTES >> 10} kB together"
            await JSONResponse({"error": said, "kind": "InputError"}, 431, _CLOSE)(scope, receive, send)
            return
        most = math.inf if scope["path"] in _STREAMED else self._most(scope)
        is_too_large = (declared_length(Headers(scope=scope)) or 0) > most
        had, waited_s, is_complete = 0, 0.0, False

        async def counted() -> Message:
            nonlocal had, waited_s, is_complete
            if is_complete:  # what comes now is that the client has gone
                return await receive()
            if is_too_large:
                raise HTTPException(413, _TOO_LARGE, _CLOSE)
            begun = time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), SLOWEST_S + had / SLOWEST_BYTES_A_S - waited_s)
            except asyncio.TimeoutError:
                message = await self._what_has_come(receive)
            waited_s += time.monotonic() - begun
            had += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if had > most:
                raise HTTPException(413, _TOO_LARGE, _CLOSE)
            return message

        await self._app(scope, counted, send)

    @staticmethod
    async def _what_has_come(receive: Receive) -> Message:
        """Returns what came while this process did not run: on a busy host it is not the client that is slow.

        Raises:
            HTTPException: nothing did.
        """
        try:
            return await asyncio.wait_for(receive(), _SECOND_LOOK_S)
        except asyncio.TimeoutError:
            raise HTTPException(408, _TOO_SLOW, _CLOSE) from None

    def _most(self, scope: Scope) -> float:
        if not scope["path"].startswith("/_nicegui/") or "/upload/" not in scope["path"]:
            return _MOST
        try:
            return (visitor_of(Request(scope), self._application).quota.upload_mb << 20) + _AROUND
        except KintuneError:
            return 0


def declared_length(headers: Headers) -> int | None:
    """The bytes that a body has by its header; None where there is none, or no number."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() else None


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_POLICY = "default-src 'none'; frame-ancestors 'none'"
_PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""For pages.  Scripts in a page run if they have its nonce; no attribute is a script.  NiceGUI needs `unsafe-eval`: Vue
compiles templates in the browser."""


_NO_PAGE = {"content-security-policy", "content-encoding", "content-range"}
"""Headers of an answer that has its policy, or cannot be given a nonce."""


class SecurityHeaders:
    """Adds security headers that an answer does not have yet; the scripts of a page are given its nonce."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with the headers."""

        page: list[bytes] | None = None
        start: Message = {}

        async def careful(message: Message) -> None:
            nonlocal page, start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if headers.get("content-type", "").startswith("text/html") and _NO_PAGE.isdisjoint(headers.keys()):
                    page, start = [], message  # it is sent when it is complete
                    return
                headers.setdefault("Content-Security-Policy", _POLICY)
            elif page is not None and message["type"] == "http.response.body":
                page.append(message.get("body", b""))
                if message.get("more_body", False):
                    return
                nonce = secrets.token_urlsafe(16)
                body = b"".join(page).replace(b"<script", b'<script nonce="%s"' % nonce.encode())
                headers = MutableHeaders(scope=start)
                headers["Content-Security-Policy"] = _PAGE_POLICY.format(nonce=nonce)
                if "content-length" in headers and body:  # the answer to HEAD has none
                    headers["Content-Length"] = str(len(body))
                await send(start)
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, careful if scope["type"] == "http" else send)
