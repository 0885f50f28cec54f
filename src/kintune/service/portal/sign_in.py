"""Signing in and out: plain forms, so that the cookie is the browser's alone and no script ever sees it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import ui

from kintune.service.access import Forbidden, Scope, Unauthorized
from kintune.service.portal.behaviour import THEME_COOKIE
from kintune.service.portal.frame import frame, heading, markup
from kintune.service.portal.markup import notice, tag
from kintune.service.web.authentication import COOKIE, ApplicationOf, address_of, require_own_origin

__all__ = ["router", "sign_in_page"]

router = APIRouter(include_in_schema=False)
_DAYS_S = 7 * 86400
_WRONG = "That token is unknown, revoked or expired, or is for machines. Ask the service's operator for another one."
_TOKENS = "The service's operator makes tokens: kintune service add-token --data DIR --user NAME"


@ui.page("/sign-in", title="Sign in · Kintune", dark=None)
def sign_in_page(request: Request, wrong: str = "") -> None:
    """The form in which a user enters a token."""
    with frame(None, theme=request.cookies.get(THEME_COOKIE)):
        heading("Sign in")
        field = tag(
            "input",
            type="password",
            name="token",
            autocomplete="current-password",
            autofocus=True,
            required=True,
            class_="native",
        )
        form = [
            tag("label", [tag("span", "Token"), field], class_="field"),
            tag("div", tag("button", "Sign in", type="submit", class_="button main")),
        ]
        parts = [
            notice(_WRONG, "bad") if wrong else "",
            tag("form", form, method="post", action="/sign-in", class_="stack"),
            tag("p", _TOKENS, class_="faint"),
        ]
        markup(tag("div", parts, class_="stack"), "card")


@router.post("/sign-in")
def sign_in(request: Request, application: ApplicationOf, token: Annotated[str, Form(max_length=128)] = "") -> Response:
    """Keep the token in a cookie, if it is valid and may read."""
    require_own_origin(request)
    try:
        visitor = application.users.visitor(token.strip(), application.now())
        visitor.require(Scope.READ)
    except (Unauthorized, Forbidden):
        return RedirectResponse("/sign-in?wrong=1", 303)
    application.audit_log.note(application.now(), "sign in", visitor.name, visitor, address_of(request))
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE, token.strip(), max_age=_DAYS_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return response


@router.post("/sign-out")
def sign_out(request: Request) -> Response:
    """Delete the cookie."""
    try:
        require_own_origin(request)
    except Forbidden:
        return RedirectResponse("/", 303)
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(COOKIE)
    return response
