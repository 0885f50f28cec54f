"""Authentication: tokens from clients, cookies from browsers; and the answers to errors."""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kintune.errors import InputError, KintuneError, OrderError, StorageError, StorageFull
from kintune.service.access import TAKES_A_TOKEN, Forbidden, Gone, NotFound, QuotaSpent, Scope, Unauthorized, Visitor
from kintune.service.blob_store import TooLarge
from kintune.service.faces import said
from kintune.service.readable_paths import without_paths
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.use_cases import UseCases
from kintune_runtime.errors import printable

__all__ = [
    "COOKIE",
    "Admin",
    "ApplicationOf",
    "Reader",
    "Submitter",
    "UseCasesOf",
    "address_of",
    "install_error_handlers",
    "require_own_origin",
    "visitor_of",
]

COOKIE = "kintune_session"
_MOST_COMPLAINTS, _LONGEST = 5, 1000
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_LOCAL_ADDRESSES = frozenset({"127.0.0.1", "::1"})
_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_STATUS: tuple[tuple[type[KintuneError], int], ...] = (
    (Unauthorized, 401),
    (QuotaSpent, 429),
    (Forbidden, 403),
    (Gone, 410),
    (NotFound, 404),
    (TooLarge, 413),
    (OrderError, 409),
    (StorageFull, 507),
    (StorageError, 503),
    (InputError, 422),
)


async def application_of(
    request: Request,
) -> ApplicationState:  # at once: what is not `async` is sent to another thread
    """Returns the state of the application that a request has come to."""
    application: ApplicationState = request.app.state.application
    return application


ApplicationOf = Annotated[ApplicationState, Depends(application_of)]


async def use_cases_of(request: Request) -> UseCases:
    """Returns the use cases of the application that a request has come to."""
    use_cases: UseCases = request.app.state.use_cases
    return use_cases


UseCasesOf = Annotated[UseCases, Depends(use_cases_of)]


def visitor_of(request: Request, application: ApplicationOf) -> Visitor:
    """Returns who is asking.

    While nobody has ever had a token, requests from this machine need none.  A request that changes something must
    come from the service's own pages if it has a cookie, or if a browser sent it without a token: browsers say where
    a request comes from, and another site cannot forge that.

    Raises:
        Unauthorized: the request has no valid token.
        Forbidden: it changes something and does not come from the service's own pages.
    """
    header = request.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer":
        return application.users.visitor(token.strip(), application.now())
    token = request.cookies.get(COOKIE, "")
    if token:
        if request.method not in _SAFE:
            require_own_origin(request)
        return application.users.visitor(token, application.now())
    if not _is_local(request):
        raise Unauthorized(TAKES_A_TOKEN)
    visitor = application.users.local(application.now())
    if request.method not in _SAFE and _is_browser(request):
        require_own_origin(request)
    return visitor


def require_own_origin(request: Request) -> None:
    """Checks that a request that changes something comes from the service's own pages.

    Raises:
        Forbidden: it does not.
    """
    origin = request.headers.get("origin") or ""
    site = request.headers.get("sec-fetch-site") or ""
    own = site == "same-origin" if site else _host_in(origin) == request.headers.get("host")
    if not own:
        raise Forbidden("this request does not come from the service's own pages")


def _host_in(origin: str) -> str:
    """The host and port of an address; empty where it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_browser(request: Request) -> bool:
    """Whether a browser asks: it says where it was sent from whenever something is to change."""
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def _is_local(request: Request) -> bool:
    """Whether a request was sent on this machine, to one of its local names, and not through a proxy.

    The name is checked against DNS rebinding: a page of another site, whose name resolves to this machine, is asked
    for by that name.  A proxy on this machine passes on requests from anywhere; one that adds no header about them
    mostly speaks HTTP/1.0.
    """
    try:
        name = (request.url.hostname or "").strip("[]")
    except ValueError:  # the query, or the name that was asked for, is no text
        return False
    passed_on = request.scope.get("http_version") == "1.0" or any(each in request.headers for each in _PASSED_ON)
    return name in _LOCAL_NAMES and address_of(request) in _LOCAL_ADDRESSES and not passed_on


def _requiring(scope: Scope) -> object:
    def visitor(request: Request, application: ApplicationOf) -> Visitor:
        found = visitor_of(request, application)
        found.require(scope)
        return found

    return Depends(visitor)


Reader = Annotated[Visitor, _requiring(Scope.READ)]
Submitter = Annotated[Visitor, _requiring(Scope.SUBMIT)]
Admin = Annotated[Visitor, _requiring(Scope.ADMIN)]


def address_of(request: Request) -> str:
    """Where a request comes from, for the audit log."""
    return request.client.host if request.client else ""


def install_error_handlers(app: FastAPI) -> None:
    """Has each error raised on purpose answered with its status and one line; the answer says nothing else."""

    @app.exception_handler(KintuneError)
    async def explain(request: Request, error: Exception) -> JSONResponse:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
        if isinstance(error, QuotaSpent):
            headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
        application: ApplicationState = request.app.state.application
        line = said(without_paths(str(error), application.settings.data))
        return _error_answer(line, type(error).__name__, status, headers)

    @app.exception_handler(ClientDisconnect)
    async def let_go(_request: Request, _error: Exception) -> JSONResponse:
        # an upload that was broken off is no fault of the service; nobody reads this answer
        return _error_answer("the connection was closed before the request was complete", "InputError", 400)

    @app.exception_handler(HTTPException)
    async def say(_request: Request, error: HTTPException) -> JSONResponse:
        # a body that is no text is 400 for FastAPI, and one that is no JSON 422
        status = 422 if error.status_code == 400 else error.status_code
        return _error_answer(str(error.detail), "InputError", status, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def name_what_is_wrong(_request: Request, error: RequestValidationError) -> JSONResponse:
        complaints = (
            f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()[:_MOST_COMPLAINTS]
        )
        return _error_answer("; ".join(complaints), "InputError", 422)


def _error_answer(error: str, kind: str, status: int, headers: dict[str, str] | None = None) -> JSONResponse:
    """One line; what cannot be printed of it came from outside."""
    line = " ".join(printable(error).split())[:_LONGEST]
    return JSONResponse({"error": line, "kind": kind}, status, headers)
