"""`/api/v1/me`, and what operators do: users, tokens, the audit log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kintune.service.access import Quota, Scope
from kintune.service.web.authentication import Admin, ApplicationOf, Reader, address_of
from kintune.service.web.schemas import ErrorOut

__all__ = ["router"]

router = APIRouter(
    prefix="/api/v1", tags=["operators"], responses={code: {"model": ErrorOut} for code in (401, 403, 404, 422)}
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class UserIn(_Strict):
    """A new user."""

    name: str = Field(max_length=64)
    jobs: int = Field(20, ge=0, le=10_000)
    upload_mb: int = Field(2048, ge=0, le=1 << 20)
    minutes: float = Field(1440.0, ge=0, le=1e7)
    storage_mb: int = Field(20_000, ge=0, le=1 << 30)


class UserChangeIn(_Strict):
    """What is to change of a user; what is left out stays."""

    jobs: int | None = Field(None, ge=0, le=10_000)
    upload_mb: int | None = Field(None, ge=0, le=1 << 20)
    minutes: float | None = Field(None, ge=0, le=1e7)
    storage_mb: int | None = Field(None, ge=0, le=1 << 30)
    disabled: bool | None = Field(None, description="Whether all tokens of the user are refused.")


class TokenIn(_Strict):
    """A new token for a user."""

    user: str = Field(max_length=64)
    label: str = Field("", max_length=64)
    scope: Scope = Scope.SUBMIT
    days: float | None = Field(90.0, gt=0, le=3650)


@router.get("/me")
def me(visitor: Reader, application: ApplicationOf) -> dict[str, Any]:
    """Who you are, what you may, and what your uploads and results take of it (`results_mb` is that of results)."""
    storage = application.models.storage(visitor.user)
    used = {"storage_mb": _mb(storage.used), "results_mb": _mb(storage.results)}
    quota = msgspec.to_builtins(visitor.quota)
    return {"name": visitor.name, "scope": visitor.scope.value, "quota": quota, "used": used}


@router.get("/users")
def users(_: Admin, application: ApplicationOf) -> list[dict[str, Any]]:
    """All users."""
    return [msgspec.to_builtins(user) for user in application.users.users()]


@router.post("/users", status_code=201)
def add_user(asked: UserIn, request: Request, visitor: Admin, application: ApplicationOf) -> dict[str, Any]:
    """Add a user."""
    quota = Quota(asked.jobs, asked.upload_mb, asked.minutes, asked.storage_mb)
    with application.database.transaction():
        user = application.users.add_user(asked.name, application.now(), quota)
        application.audit_log.note(application.now(), "add user", user.name, visitor, address_of(request))
    found: dict[str, Any] = msgspec.to_builtins(user)
    return found


@router.patch("/users/{name}")
def change_user(
    name: Annotated[str, Path(max_length=64)],
    asked: UserChangeIn,
    request: Request,
    visitor: Admin,
    application: ApplicationOf,
) -> dict[str, Any]:
    """Give a user other quotas, or lock them out."""
    given = asked.model_dump(exclude_none=True)
    limits = {limit: value for limit, value in given.items() if limit != "disabled"}
    with application.database.transaction():
        quota = msgspec.structs.replace(application.users.user(name).quota, **limits)
        user = application.users.change_user(name, quota=quota, disabled=asked.disabled)
        application.audit_log.note(application.now(), "change user", user.name, visitor, address_of(request), given)
    found: dict[str, Any] = msgspec.to_builtins(user)
    return found


@router.post("/tokens", status_code=201)
def add_token(asked: TokenIn, request: Request, visitor: Admin, application: ApplicationOf) -> dict[str, Any]:
    """Make a token; its text is in this answer and nowhere else."""
    with application.database.transaction():
        user = application.users.user(asked.user)
        token = application.users.add_token(user, asked.label, asked.scope, application.now(), asked.days)
        application.audit_log.note(
            application.now(), "add token", token.hint, visitor, address_of(request), {"user": user.name}
        )
    return {"token": token.text, "hint": token.hint}


@router.get("/tokens")
def tokens(_: Admin, application: ApplicationOf) -> list[dict[str, Any]]:
    """All tokens, without what is secret of them."""
    return [msgspec.to_builtins(token) for token in application.users.tokens()]


@router.delete("/tokens/{token}", status_code=204)
def revoke(
    token: Annotated[int, Path(ge=1, lt=1 << 62)], request: Request, visitor: Admin, application: ApplicationOf
) -> Response:
    """Revoke a token."""
    with application.database.transaction():
        application.users.revoke(token, application.now())
        application.audit_log.note(application.now(), "revoke token", str(token), visitor, address_of(request))
    return Response(status_code=204)


@router.get("/audit")
def audit(
    _: Admin,
    application: ApplicationOf,
    before: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[dict[str, Any]]:
    """Who did what, newest first."""
    return [msgspec.to_builtins(note) for note in application.audit_log.read(before, limit)]


def _mb(size: int) -> float:
    return round(size / (1 << 20), 1)
