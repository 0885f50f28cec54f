from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service as Driver

from kintune.testing.serving import Serving, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--minutes", "0.3") as running:
        yield running


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A browser without a screen, which downloads to `tmp_path`."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser is not None
    assert driver is not None
    options = Options()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    opened = webdriver.Chrome(options=options, service=Driver(driver))
    try:
        yield opened
    finally:
        opened.quit()
