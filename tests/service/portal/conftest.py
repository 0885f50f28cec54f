from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from kintune.testing.serving import Serving, serving
from tests.support.browsing import open_browser
from tests.support.portal_pages import Pages, portal_pages


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--minutes", "0.3") as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with portal_pages(tmp_path_factory.mktemp("pages")) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A browser without a screen, for the tests of a module that download nothing."""
    with open_browser() as opened:
        yield opened


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A browser without a screen, which downloads to `tmp_path`."""
    with open_browser(tmp_path) as opened:
        yield opened
