"""What all pages of the portal share: who is signed in, links to the other pages, dark or light, and their mounting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import import_module
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui

from kintune.errors import KintuneError
from kintune.service.access import TAKES_A_TOKEN, NotFound, Scope, Unauthorized, Visitor
from kintune.service.job_status import JobStatus
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import address_of, visitor_of
from kintune.service.web.live_state import LiveState
from kintune.service.web.use_cases import UseCases

__all__ = ["STATE_COLORS", "PageContext", "frame", "moment", "mount", "page", "telling"]

STATE_COLORS = {JobStatus.DONE: "positive", JobStatus.FAILED: "negative", JobStatus.CANCELLED: "grey"}
"""Colours of the states that a job does not leave."""

_PAGES = ("jobs", "models", "others")
_LINKS = (("Jobs", "/"), ("Models", "/models"), ("Compare", "/compare"), ("Resources", "/resources"))
_FAMILY = "system-ui, sans-serif"


class PageContext:
    """What a page needs: the application state, the live state, the use cases, and who is there."""

    def __init__(
        self, application: ApplicationState, live_state: LiveState, use_cases: UseCases, request: Request
    ) -> None:
        self.application = application
        self.live_state = live_state
        self.use_cases = use_cases
        self.address = address_of(request)
        self._request = request

    @property
    def visitor(self) -> Visitor:
        """Who is signed in, looked up anew: a token may be revoked while a page is open.

        Raises:
            Unauthorized: nobody is, or with a token for machines.
        """
        visitor = visitor_of(self._request, self.application)
        if not visitor.scope.covers(Scope.READ):
            raise Unauthorized(TAKES_A_TOKEN)
        return visitor

    @property
    def submitter(self) -> Visitor:
        """The visitor, for what changes something.

        Raises:
            Unauthorized: nobody is signed in.
            Forbidden: the visitor may only read.
        """
        visitor = self.visitor
        visitor.require(Scope.SUBMIT)
        return visitor


def page(path: str, title: str) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Makes a function a page for who is signed in; everybody else is sent to the sign-in page.

    The function is given a `PageContext`, then what the path names.
    """

    def decorate(build: Callable[..., Awaitable[None]]) -> Any:
        async def built(request: Request) -> Response | None:
            state = nicegui_app.state  # of NiceGUI's own application, where `mount` has put them
            context = PageContext(state.application, state.live_state, state.use_cases, request)
            try:
                visitor = context.visitor
            except Unauthorized:
                return RedirectResponse("/sign-in")
            with frame(title, visitor):
                try:
                    await build(context, **request.path_params)
                except NotFound as error:
                    ui.label(str(error)).classes("text-lg")
                    ui.link("Back to your jobs", "/")
            return None

        built.__name__, built.__doc__ = build.__name__, build.__doc__
        return ui.page(path, title=f"{title} · Kintune", dark=None)(built)

    return decorate


@contextmanager
def frame(title: str, visitor: Visitor | None) -> Iterator[None]:
    """The header, and the column that a page's content stands in; one column on a phone."""
    ui.query("body").style(f"font-family: {_FAMILY}")
    with ui.header(elevated=False).classes("items-center gap-4 px-4 py-2 flex-wrap"):
        ui.link("Kintune", "/").classes("text-xl font-bold text-white no-underline")
        if visitor is not None:
            for name, target in _LINKS:
                ui.link(name, target).classes("text-white no-underline")
            ui.space()
            ui.label(visitor.name).classes("opacity-80")
            dark = ui.dark_mode(None)
            ui.button(icon="contrast", on_click=lambda: dark.set_value(not dark.value)).props(
                "flat dense color=white"
            ).tooltip("Dark or light")
            if visitor.token is not None:
                with ui.element("form").props('method="post" action="/sign-out"'):
                    ui.button("Sign out").props("flat dense color=white type=submit")
    with ui.column().classes("w-full max-w-6xl mx-auto p-4 gap-4"):
        ui.label(title).classes("text-2xl font-semibold")
        yield


@contextmanager
def telling() -> Iterator[None]:
    """A block whose errors are shown as a notice; without a valid token, the sign-in page is opened."""
    try:
        yield
    except Unauthorized:
        ui.navigate.to("/sign-in")
    except KintuneError as error:
        ui.notify(str(error), type="negative", multi_line=True, timeout=10_000)


def moment(at: float | None) -> str:
    """A time of day for people, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def mount(app: FastAPI) -> None:
    """Adds the pages to the application of the web process; a process has one portal."""
    for name in _PAGES:
        import_module(f"kintune.service.portal.{name}")  # pages are there once they are imported
    app.include_router(import_module("kintune.service.portal.sign_in").router)
    for name in ("application", "live_state", "use_cases"):
        setattr(nicegui_app.state, name, getattr(app.state, name))  # pages belong to NiceGUI's own application
    ui.run_with(app, title="Kintune", dark=None, show_welcome_message=False)
