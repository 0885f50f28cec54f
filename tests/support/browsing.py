"""What people do in a browser: look for words, click, and choose a theme and a width."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service as Driver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

__all__ = [
    "can_be_pressed",
    "choose",
    "click",
    "open_browser",
    "picture",
    "prefer",
    "press",
    "read",
    "text",
    "texts",
    "violations",
    "wait_for",
    "wait_until_shown",
    "widen",
]

REDRAWN = (StaleElementReferenceException,)
"""What happens when a page changes while it is read: it is read again."""

_GONE = "Node with given id does not belong to the document"
"""What chromedriver says of an element that was replaced while it looked at it, under the name of an unknown error."""

_T = TypeVar("_T")

_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_WAIT_FOR_ANIMATIONS = """
    const done = arguments[0];
    const running = () => document.getAnimations().filter(
        (each) => each.playState === "running" && each.effect.getComputedTiming().endTime !== Infinity);
    const look = () => {
        const left = running();
        if (left.length === 0) done(); else Promise.allSettled(left.map((each) => each.finished)).then(look);
    };
    look();
"""
_CLICKED = "self::a or self::button or self::summary or self::div[contains(concat(' ', @class, ' '), ' q-item ')]"


class Chromium(webdriver.Chrome):
    """A driver that gives every replaced element the same name, `StaleElementReferenceException`."""

    def execute(self, driver_command: Any, params: dict[str, Any] | None = None) -> Any:
        try:
            return super().execute(driver_command, params)
        except WebDriverException as problem:
            if _GONE in (problem.msg or ""):
                raise StaleElementReferenceException(problem.msg) from problem
            raise


def open_browser(downloads: Path | None = None) -> webdriver.Chrome:
    """A browser without a screen, which downloads to a folder."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser is not None
    assert driver is not None
    options = Options()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    if downloads is not None:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    return Chromium(options=options, service=Driver(driver))


def read(browser: webdriver.Chrome, what: Callable[[webdriver.Chrome], _T], seconds: float = 30) -> _T:
    """What is read from a page, again where the page changes meanwhile."""
    (found,) = WebDriverWait(browser, seconds, ignored_exceptions=REDRAWN).until(lambda page: (what(page),))
    return found


def text(browser: webdriver.Chrome) -> str:
    """The words on a page."""
    return read(browser, lambda page: page.find_element(By.TAG_NAME, "body").text)


def texts(browser: webdriver.Chrome, css: str) -> list[str]:
    """The words of each element that a CSS selector finds."""
    return read(browser, lambda page: [each.text for each in page.find_elements(By.CSS_SELECTOR, css)])


def wait_for(browser: webdriver.Chrome, *words: str, seconds: float = 30) -> None:
    """Wait until one of `words` is on the page."""
    try:
        patience = WebDriverWait(browser, seconds, ignored_exceptions=REDRAWN)
        patience.until(lambda b: any(each.lower() in text(b).lower() for each in words))
    except TimeoutException:
        picture(browser, "missing")
        raise AssertionError(f"{words} is not on the page, which says: {text(browser)[:1500]}") from None


def wait_until_shown(browser: webdriver.Chrome, seconds: float = 30) -> None:
    """Wait until a page has its heading."""
    WebDriverWait(browser, seconds, ignored_exceptions=REDRAWN).until(
        lambda b: any(each.text for each in b.find_elements(By.TAG_NAME, "h1"))
    )


def click(browser: webdriver.Chrome, words: str) -> None:
    """Click the first link, button or choice that has these words."""
    xpath = f"//*[{_CLICKED}][contains(translate(., '{words.upper()}', '{words.lower()}'), '{words.lower()}')]"

    def clicked(page: webdriver.Chrome) -> bool:
        found = [element for element in page.find_elements(By.XPATH, xpath) if element.is_displayed()]
        if found:
            page.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])
            found[0].click()
        return bool(found)

    WebDriverWait(browser, 30, ignored_exceptions=REDRAWN).until(clicked)


def press(browser: webdriver.Chrome, css: str) -> None:
    """Click the first element that a CSS selector finds, again where it is redrawn meanwhile."""
    read(browser, lambda page: page.find_element(By.CSS_SELECTOR, css).click())


def can_be_pressed(browser: webdriver.Chrome, identifier: str) -> bool:
    """Whether the button of this identifier is enabled."""
    return read(browser, lambda page: page.find_element(By.ID, identifier).is_enabled())


def choose(browser: webdriver.Chrome, field: str, words: str) -> None:
    """Choose the value with these words in a field of that name from which one value is chosen."""
    xpath = f"//label[contains(concat(' ', @class, ' '), ' q-select ')][.//*[@aria-label='{field}' or .='{field}']]"

    def open_list(page: webdriver.Chrome) -> None:
        found = page.find_element(By.XPATH, xpath)
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    read(browser, open_list)
    click(browser, words)


def prefer(browser: webdriver.Chrome, theme: str) -> None:
    """Say what the system prefers: "dark" or "light"."""
    preference = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [preference]})


def widen(browser: webdriver.Chrome, width: int, height: int = 900) -> None:
    """Give pages so many pixels, also fewer than a window may have."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def picture(browser: webdriver.Chrome, name: str, *, whole: bool = False) -> None:
    """Keep a screenshot where $KINTUNE_PICTURES says, for people to look at; `whole` also shows what is below."""
    place = os.environ.get("KINTUNE_PICTURES")
    if not place:
        return
    Path(place).mkdir(parents=True, exist_ok=True)
    if whole:
        size = browser.execute_script("return [innerWidth, document.documentElement.scrollHeight]")
        widen(browser, *size)
        browser.save_screenshot(str(Path(place) / f"{name}.png"))
        widen(browser, size[0])
    else:
        browser.save_screenshot(str(Path(place) / f"{name}.png"))


def violations(browser: webdriver.Chrome) -> list[str]:
    """What axe-core finds on the page, of levels A and AA of the Web Content Accessibility Guidelines.

    It is asked when nothing fades in or out any more: words that are half shown have little contrast.
    """
    browser.execute_async_script(_WAIT_FOR_ANIMATIONS)
    if not browser.execute_script("return !!window.axe"):
        browser.execute_script((files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found: dict[str, Any] = browser.execute_async_script(
        "const done = arguments[1]; axe.run(document, {runOnly: arguments[0]}).then(done)", _LEVELS
    )
    return [
        f"{rule['id']}: {node['html'][:160]} ({node['any'][0]['message'] if node['any'] else rule['help']})"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
