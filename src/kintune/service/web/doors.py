"""Who comes in: tokens from clients, cookies from browsers; and what becomes of errors."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from kintune.errors import InputError, KintuneError, OrderError, StorageError, StorageFull
from kintune.service.access import Forbidden, NotFound, Scope, Unauthorized, Visitor
from kintune.service.content import TooLarge
from kintune.service.web.rooms import Rooms

__all__ = ["COOKIE", "Admin", "Reader", "RoomsOf", "Submitter", "address_of", "install_error_handlers", "require_own_origin"]

COOKIE = "kintune_session"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_STATUS: tuple[tuple[type[KintuneError], int], ...] = (
    (Unauthorized, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (TooLarge, 413),
    (OrderError, 409),
    (StorageFull, 507),
    (StorageError, 503),
    (InputError, 422),
)


def rooms_of(request: Request) -> Rooms:
    """The rooms of the application that a request has come to."""
    rooms: Rooms = request.app.state.rooms
    return rooms


RoomsOf = Annotated[Rooms, Depends(rooms_of)]


def visitor_of(request: Request, rooms: RoomsOf) -> Visitor:
    """Who is asking.

    A cookie counts only for requests that change nothing, or that come from the service's own pages: a browser says
    where a request comes from, and another site cannot make it lie.

    Raises Unauthorized or Forbidden.
    """
    header = request.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer":
        return rooms.people.visitor(token.strip(), rooms.now())
    token = request.cookies.get(COOKIE, "")
    if not token:
        raise Unauthorized("this takes a token: send it as 'Authorization: Bearer kt_...'")
    if request.method not in _SAFE:
        require_own_origin(request)
    return rooms.people.visitor(token, rooms.now())


def require_own_origin(request: Request) -> None:
    """See that a request that changes something comes from the service's own pages.  Raises Forbidden."""
    origin = request.headers.get("origin") or ""
    site = request.headers.get("sec-fetch-site") or ""
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if site not in ("same-origin", "") or (origin and origin != own) or not (origin or site):
        raise Forbidden("this request does not come from the service's own pages")


def _requiring(scope: Scope) -> object:
    def visitor(request: Request, rooms: RoomsOf) -> Visitor:
        found = visitor_of(request, rooms)
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
    """Every error raised on purpose becomes one line and its status; nothing else is told."""

    @app.exception_handler(KintuneError)
    async def explain(_request: Request, error: Exception) -> JSONResponse:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
        return JSONResponse({"error": str(error), "kind": type(error).__name__}, status, headers)
