from __future__ import annotations

import pytest
from selenium import webdriver

from tests.service.portal.conftest import Pages
from tests.support.browsing import press, text, texts, wait_for, wait_until_shown, widen

pytestmark = pytest.mark.needs("chromium")


def test_models_and_sets_of_inputs_are_listed_and_deleted(pages: Pages, browser: webdriver.Chrome) -> None:
    widen(browser, 1280)
    browser.get(f"{pages.url}/models")
    wait_until_shown(browser)
    said = text(browser)
    for words in ("Sets of inputs", "image: 1 x 3 x 224 x 224", "Your uploads take 281.0 of 20000 MB."):
        assert words in said
    assert sum("pictures" in row for row in texts(browser, "tbody tr")) == 1
    press(browser, "#list-inputs input[data-every]")
    press(browser, "#forget-inputs")
    wait_for(browser, "These uploads are deleted for good")
    press(browser, "#ask-inputs-yes")
    wait_for(browser, "1 upload deleted.")
    assert "Your uploads take 280.4 of 20000 MB." in text(browser)
    assert "Sets of inputs" not in text(browser)
    press(browser, f"#choose-{pages.model}")
    press(browser, "#forget-models")
    press(browser, "#ask-models-yes")
    wait_for(browser, "Not deleted, since an unfinished job needs it: resnet50.")
    browser.get(f"{pages.url}/models?q=MOBILE+v2")
    wait_for(browser, "All models")
    assert [row.split()[0] for row in texts(browser, "tbody td.name")] == ["mobilenet_v2"]
