"""Shared parts of all portal pages: the signed-in user, links to other pages, the theme, and their mounting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import import_module
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui

from kintune.errors import KintuneError
from kintune.service.access import TAKES_A_TOKEN, NotFound, Scope, Unauthorized, Visitor
from kintune.service.portal.behaviour import THEME_COOKIE, script
from kintune.service.portal.markup import link, notice, tag, text
from kintune.service.portal.style import style_sheet
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import address_of, visitor_of
from kintune.service.web.live_state import LiveState
from kintune.service.web.middleware import SecurityHeaders
from kintune.service.web.use_cases import UseCases

__all__ = [
    "READ_ONLY",
    "PageContext",
    "PageRegion",
    "ago",
    "early_heading",
    "frame",
    "heading",
    "keep_up_to_date",
    "markup",
    "moment",
    "mount",
    "page",
    "telling",
]

_PAGES = ("jobs", "job", "models", "new_job", "devices", "compare")
_ROUTERS = ("sign_in", "bulk", "models", "devices")
_LINKS = (("Jobs", "/"), ("New job", "/new"), ("Models", "/models"), ("Devices", "/devices"), ("Compare", "/compare"))
_BUILT_WITHIN_S = 30.0

READ_ONLY = "Your token may only read. To submit or change jobs, sign in with a token of the scope submit."
"""What stands where others have buttons."""

Read = TypeVar("Read")


class PageContext:
    """What a page needs: the application state, the live state, the use cases, and the visitor."""

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

    @property
    def query(self) -> Mapping[str, str]:
        """What the page's address says after the question mark, the last value of each name."""
        return self._request.query_params

    def values(self, name: str) -> list[str]:
        """All values of a name after the question mark."""
        return self._request.query_params.getlist(name)


class PageRegion:
    """A part of a page whose markup is sent again when it has changed."""

    def __init__(self, content: str = "", classes: str = "") -> None:
        self._element = markup(content, classes)

    def show(self, content: str) -> None:
        """Show this; nothing is sent where it is the same."""
        if content != self._element.content:
            self._element.set_content(content)


def keep_up_to_date(
    every_s: float, read: Callable[[], Read], show: Callable[[Read], None], *, active: bool = True
) -> ui.timer:
    """Reads in a thread and shows what was read, again and again until nobody is signed in any more.

    While nothing can be read, a notice stands here that says why.  The timer that is returned can be deactivated.
    """
    problem = PageRegion("", "stack")

    async def refresh() -> None:
        try:
            found = await asyncio.to_thread(read)
        except Unauthorized:
            timer.deactivate()
            problem.show(notice("You are not signed in any more.", "bad") + tag("p", link("Sign in", "/sign-in")))
        except KintuneError as error:
            problem.show(notice(f"This page is not up to date: {error}", "bad"))
        else:
            problem.show("")
            show(found)

    timer = ui.timer(every_s, refresh, active=active)
    return timer


def page(path: str, title: str) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Makes a function a page for who is signed in; everybody else is sent to the sign-in page.

    The function is given a `PageContext`, then what the path names.  It begins with a `heading`.
    """

    def decorate(build: Callable[..., Awaitable[None]]) -> Any:
        async def built(request: Request) -> Response | None:
            state = nicegui_app.state  # of NiceGUI's own application, where `mount` has put them
            context = PageContext(state.application, state.live_state, state.use_cases, request)
            theme = request.cookies.get(THEME_COOKIE)
            try:
                visitor = context.visitor
            except Unauthorized:
                return RedirectResponse("/sign-in")
            except KintuneError:  # the database does not answer; a stranger is not told why
                with frame(None, theme=theme):
                    heading("Not available")
                    markup(notice("The service cannot look up who you are now. Load the page again soon.", "bad"))
                return None
            with frame(visitor, request.url.path, theme):
                try:
                    await build(context, **request.path_params)
                except KintuneError as error:
                    _say_why(error)
            return None

        built.__name__, built.__doc__ = build.__name__, build.__doc__
        return ui.page(path, title=f"{title} · Kintune", dark=None, response_timeout=_BUILT_WITHIN_S)(built)

    return decorate


def _say_why(error: KintuneError) -> None:
    """What stands on a page that cannot be shown."""
    if isinstance(error, NotFound):
        heading("Not found")
        said, onward = str(error), link("Back to your jobs", "/")
    else:  # the database does not answer, for instance
        heading("Not available")
        said, onward = f"This page cannot be shown now: {error}", "Load it again soon."
    markup(notice(said, "bad") + tag("p", onward), "stack")


@contextmanager
def frame(visitor: Visitor | None, path: str = "", theme: str | None = None) -> Iterator[None]:
    """The header, and the column that a page's content stands in; `theme` is "dark", "light" or the system's."""
    ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    header = _header(visitor, path)
    _early(tag("div", header, class_="q-header"))
    with ui.header(elevated=False, fixed=False):
        markup(header)
    with ui.element("div").classes("page").props('id="content" tabindex="-1"'):
        yield


def _header(visitor: Visitor | None, path: str) -> str:
    switch = tag("button", "Dark / light", type="button", data_theme="")
    parts = [tag("a", "Skip to the content", href="#content", class_="skip"), link("Kintune", "/", class_="brand")]
    end = [switch]
    if visitor is not None:
        links = (link(name, target, aria_current="page" if target == path else None) for name, target in _LINKS)
        parts.append(tag("nav", links, aria_label="Pages"))
        end.insert(0, tag("span", text(visitor.name), title="You are signed in as"))
        if visitor.token is not None:
            out = tag("button", "Sign out", type="submit")
            end.append(tag("form", out, method="post", action="/sign-out"))
    parts.append(tag("div", end, class_="end"))
    return tag("div", parts, class_="bar")


def heading(words: str) -> None:
    """The page's heading."""
    early_heading(words)
    markup(tag("h1", text(words)))


def early_heading(words: str) -> None:
    """Has the browser show these words as the heading until the page's scripts are there."""
    _early(tag("div", tag("div", text(words), class_="h1"), class_="page"))


def _early(content: str) -> None:
    """Markup that is shown until the page's scripts are there, so that something is there at once."""
    ui.add_body_html(tag("div", content, class_="early", aria_hidden="true"))


def markup(content: str, classes: str = "") -> ui.html:
    """Markup on the page; what came from outside is escaped in it already."""
    return ui.html(content, sanitize=False).classes(classes)


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


def ago(at: float, now: float) -> str:
    """How long ago something was, in words."""
    seconds = max(0.0, now - at)
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {name} ago"
    return "just now"


def mount(app: FastAPI) -> None:
    """Adds the pages to the application of the web process; a process has one portal."""
    for name in _PAGES:
        import_module(f"kintune.service.portal.{name}")  # pages are there once they are imported
    for name in _ROUTERS:
        app.include_router(import_module(f"kintune.service.portal.{name}").router)
    for name in ("application", "live_state", "use_cases"):
        setattr(nicegui_app.state, name, getattr(app.state, name))  # pages belong to NiceGUI's own application
    ui.add_head_html(f"<style>{style_sheet()}</style><script>{script()}</script>", shared=True)
    ui.run_with(
        app, title="Kintune", dark=None, language="en-US", tailwind=False, show_welcome_message=False,
        gzip_middleware_factory=lambda pages: GZipMiddleware(SecurityHeaders(pages)),  # nonces, before it is compressed
    )  # fmt: skip
