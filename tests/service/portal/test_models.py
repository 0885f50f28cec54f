from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.service.portal.conftest import Pages
from tests.support.browsing import text, texts, wait_for, wait_until_shown, widen

pytestmark = pytest.mark.needs("chromium")


def test_models_and_sets_of_inputs_are_listed_and_deleted(pages: Pages, browser: webdriver.Chrome) -> None:
    widen(browser, 1280)
    browser.get(f"{pages.url}/models")
    wait_until_shown(browser)
    said = text(browser)
    for words in ("Sets of inputs", "image: 1 x 3 x 224 x 224", "Your uploads take 281.0 of 20000 MB."):
        assert words in said
    assert sum("pictures" in row for row in texts(browser, "tbody tr")) == 1
    browser.find_element(By.CSS_SELECTOR, "form[action^='/inputs/'] button").click()
    wait_for(browser, "Your uploads take 280.4 of 20000 MB.")
    assert "Sets of inputs" not in text(browser)
    browser.find_element(By.CSS_SELECTOR, f"form[action='/models/{pages.model}/forget'] button").click()
    wait_for(browser, "That upload was not deleted: an unfinished job needs it.")
