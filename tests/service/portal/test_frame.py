"""Every page, in both themes and at two widths: nothing from elsewhere, nothing too wide, nothing inaccessible.

The fast tests see each theme and each width once, the slow ones the two other pairs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from kintune.errors import StorageError
from kintune.service.access import NotFound, Scope, Unauthorized, Visitor
from kintune.service.portal import frame
from kintune.service.portal.frame import READ_ONLY, ago
from kintune.service.settings import ServiceSettings
from kintune.service.web.application_state import ApplicationState
from kintune.testing.serving import serving
from tests.service.portal.conftest import Pages
from tests.support.browsing import click, picture, prefer, text, violations, wait_for, wait_until_shown, widen
from tests.support.portal_jobs import PortalJobs

pytestmark = pytest.mark.timeout(300)
browsed = pytest.mark.needs("chromium")


@browsed
@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("dark", 1280, marks=pytest.mark.slow),
        pytest.param("light", 360, marks=pytest.mark.slow),
    ],
)
def test_pages_hold_at_each_width_and_theme(pages: Pages, browser: webdriver.Chrome, theme: str, width: int) -> None:
    prefer(browser, theme)
    widen(browser, width)
    found = {}
    for name, path in pages.paths.items():
        browser.get(pages.url + path)
        wait_until_shown(browser)
        browser.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")
        picture(browser, f"{name}-{theme}-{width}", whole=True)
        wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        problems = violations(browser) + ([f"{wide} pixels too wide"] if wide > 0 else [])
        if problems:
            found[name] = problems
    assert found == {}


@browsed
def test_a_theme_that_was_chosen_stays(pages: Pages, browser: webdriver.Chrome) -> None:
    prefer(browser, "light")
    widen(browser, 1280)
    browser.get(pages.url)
    wait_until_shown(browser)
    light = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    click(browser, "Dark / light")
    browser.get(f"{pages.url}/models")
    wait_until_shown(browser)
    assert browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") != light
    browser.delete_all_cookies()


@browsed
def test_pages_load_nothing_from_elsewhere(pages: Pages, browser: webdriver.Chrome) -> None:
    for path in pages.paths.values():
        browser.get(pages.url + path)
        wait_until_shown(browser)
        names = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        assert [
            name
            for name in names
            if not name.startswith((pages.url, pages.url.replace("http", "ws"), "data:", "blob:"))
        ] == []


@browsed
def test_pages_work_under_their_policy_and_run_no_script_that_is_injected(
    pages: Pages, browser: webdriver.Chrome
) -> None:
    browser.get_log("browser")
    for path in (*pages.paths.values(), "/api/docs"):
        browser.get(pages.url + path)
        if path != "/api/docs":
            wait_until_shown(browser)
        assert [line for line in browser.get_log("browser") if "Content Security Policy" in line["message"]] == []
    inject = """
        window.injected = 0;
        document.body.insertAdjacentHTML('beforeend', '<img src="/nothing" onerror="window.injected = 1">');
        document.body.lastElementChild.addEventListener('error', () => setTimeout(() => arguments[0](injected)));
    """
    assert browser.execute_async_script(inject) == 0
    assert any("Content Security Policy" in line["message"] for line in browser.get_log("browser"))


@browsed
def test_a_page_is_reached_by_keyboard(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(pages.url)
    wait_until_shown(browser)
    focused = []
    for _ in range(6):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused.append(browser.switch_to.active_element.text)
    assert focused == ["Skip to the content", "Kintune", "Jobs", "New job", "Models", "Devices"]
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for(browser, "Waiting jobs")


@browsed
def test_a_job_that_is_not_there(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/000000000000")
    wait_for(browser, "there is no job")
    assert "Back to your jobs" in text(browser)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3.0, "just now"), (59.0, "just now"), (61.0, "1 min ago"), (7200.0, "2 h ago"), (200_000.0, "2 d ago")],
)
def test_ages_are_told_in_words(seconds: float, said: str) -> None:
    assert ago(1e6 - seconds, 1e6) == said


@browsed
def test_what_cannot_be_read_is_found(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/models")
    wait_until_shown(browser)
    browser.execute_script(
        "document.querySelector('h1').style.color = '#eee'; document.querySelector('h1').style.background = '#fff'"
    )
    assert [each.partition(":")[0] for each in violations(browser)] == ["color-contrast"]


class FakeTimer:
    """Calls back when it is told to."""

    def __init__(self, every_s: float, call: Callable[[], Awaitable[None]], *, active: bool) -> None:
        self.call, self.active = call, active

    def deactivate(self) -> None:
        self.active = False


class FakeRegion:
    """Keeps what it shows."""

    shown = ""

    def __init__(self, content: str, classes: str) -> None:
        self.show(content)

    def show(self, content: str) -> None:
        FakeRegion.shown = content


def test_a_page_is_kept_up_to_date_until_nobody_is_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame.ui, "timer", FakeTimer)
    monkeypatch.setattr(frame, "PageRegion", FakeRegion)
    shown: list[object] = []
    loop_thread, threads = threading.get_ident(), set[int]()
    answers = iter([1, StorageError("the database is away"), 2, Unauthorized("gone")])

    def read() -> int:
        threads.add(threading.get_ident())
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def show(found: int) -> None:
        assert threading.get_ident() == loop_thread
        shown.append(found)

    timer: Any = frame.keep_up_to_date(2.0, read, show)
    for expected, said in (([1], ""), ([1], "not up to date: the database is away"), ([1, 2], "")):
        asyncio.run(timer.call())
        assert (shown, timer.active) == (expected, True)
        assert (said in FakeRegion.shown) if said else not FakeRegion.shown
    asyncio.run(timer.call())
    assert (shown, timer.active) == ([1, 2], False)
    assert "/sign-in" in FakeRegion.shown
    assert loop_thread not in threads


@pytest.mark.parametrize(
    ("who", "built", "said"),
    [
        (None, NotFound("there is no job j1"), "there is no job j1"),
        (None, StorageError("the database is away"), "This page cannot be shown now: the database is away"),
        (StorageError("/data/service.sqlite: locked"), None, "The service cannot look up who you are now."),
    ],
)
def test_a_page_that_cannot_be_shown_says_so(
    monkeypatch: pytest.MonkeyPatch, who: Exception | None, built: Exception | None, said: str
) -> None:
    shown: list[str] = []
    request: Any = SimpleNamespace(
        cookies={}, client=None, url=SimpleNamespace(path="/x"), path_params={}, query_params={}
    )

    def visitor_of(*_: object) -> Visitor:
        if who is not None:
            raise who
        return Visitor(1, "anna", Scope.SUBMIT, None)

    async def build(_: object) -> None:
        assert built is not None
        raise built

    monkeypatch.setattr(frame.ui, "page", lambda *_args, **_more: lambda function: function)
    monkeypatch.setattr(frame, "nicegui_app", SimpleNamespace(state=SimpleNamespace(
        application=None, live_state=None, use_cases=None
    )))  # fmt: skip
    monkeypatch.setattr(frame, "frame", lambda *_args, **_more: contextlib.nullcontext())
    monkeypatch.setattr(frame, "heading", shown.append)
    monkeypatch.setattr(frame, "markup", lambda content, *_classes: shown.append(content))
    monkeypatch.setattr(frame, "visitor_of", visitor_of)
    assert asyncio.run(frame.page("/x", "X")(build)(request)) is None
    assert said in "".join(shown)
    assert "service.sqlite" not in "".join(shown)


@browsed
def test_who_may_only_read_is_offered_no_changes(tmp_path: Path, browser: webdriver.Chrome) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with ApplicationState(ServiceSettings(data=str(data))) as application:
        made = PortalJobs(application, tmp_path)
        model = made.model("resnet50")
        made.inputs("pictures")
        tuning, failed = made.tuning(model), made.failed(model, "no memory is left")
        user, now = application.users.user("local"), application.now()
        token = application.users.add_token(user, "", Scope.READ, now, None).text
    with serving(data, "--part", "web", ready="/healthz") as running:
        browser.get(f"{running.url}/sign-in")
        wait_until_shown(browser)
        browser.find_element(By.NAME, "token").send_keys(token, Keys.ENTER)
        wait_for(browser, "no memory is left")
        for path in ("/", f"/jobs/{tuning.id}", f"/jobs/{failed.id}", "/new", f"/new?model={model}", "/models"):
            browser.get(running.url + path)
            wait_for(browser, READ_ONLY)
            said = text(browser)
            refused = ("Cancel", "Try again", "Finish with", "New job with", "Drop an ONNX", "Make it fast", "Forget")
            assert [words for words in refused if words in said] == [], path
    browser.delete_all_cookies()
