"""Middleware: limits the bytes of requests before and while they are read, and adds security headers to answers.

A framework reads a request's body before it checks who sends it, so what a stranger can make the service keep in memory
or on disk is limited here.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kintune.errors import KintuneError
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import visitor_of

__all__ = ["LimitBodies", "SecurityHeaders"]
_MOST = 1 << 20
_AROUND = 1 << 20  # what a form adds to a file
_STREAMED = ("/api/v1/models", "/api/v1/inputs")  # they count for themselves, and keep nothing in memory


class LimitBodies:
    """Limits a body to a megabyte, and files for the portal to what the visitor may upload."""

    def __init__(self, app: ASGIApp, application: ApplicationState) -> None:
        self._app = app
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, as long as it is small enough."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS") or scope["path"] in _STREAMED:
            await self._app(scope, receive, send)
            return
        most, had = self._most(scope), 0

        async def counted() -> Message:
            nonlocal had
            message = await receive()
            had += len(message.get("body", b""))
            if had > most:
                raise HTTPException(413, "the request is larger than allowed")
            return message

        await self._app(scope, counted, send)

    def _most(self, scope: Scope) -> int:
        if not scope["path"].startswith("/_nicegui/") or "/upload/" not in scope["path"]:
            return _MOST
        try:
            return (visitor_of(Request(scope), self._application).quota.upload_mb << 20) + _AROUND
        except KintuneError:
            return 0


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class SecurityHeaders:
    """Adds security headers that an answer does not have yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with the headers."""

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, careful if scope["type"] == "http" else send)
