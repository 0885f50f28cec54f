from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.service.portal.conftest import Pages
from tests.support.browsing import click, press, read, text, texts, wait_for, wait_until_shown, widen
from tests.support.trace_events import trace_problems

pytestmark = pytest.mark.needs("chromium")


def heading(browser: webdriver.Chrome) -> str:
    return texts(browser, "h1")[0]


def test_a_result_says_what_was_won(pages: Pages, browser: webdriver.Chrome) -> None:
    widen(browser, 1280)
    browser.get(f"{pages.url}/jobs/{pages.done.id}")
    wait_until_shown(browser)
    assert heading(browser) == "resnet50: 1.32 ms"
    said = text(browser)
    for words in (
        "1.32x as fast as onnxruntime", "largest relative error 3e-6, within the tolerance", "until 0.8 of onnxruntime",
        "layer1/conv0 + BN + Relu", "arithmetic 90%",
        "convolutions:", "Python wheel", "For onnxruntime", "For C and C++",
    ):  # fmt: skip
        assert words in said, said
    assert "fused_" not in said
    lines = texts(browser, ".only-wide svg text")
    assert {"onnxruntime 1.74 ms", "openvino 1.86 ms", "target 1.39 ms", "Kintune 1.36 ms"} <= set(lines)
    click(browser, "History")
    wait_for(browser, "packaging")


def test_a_narrow_result_says_its_error(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.narrow.id}")
    wait_until_shown(browser)
    wait_for(browser, "bf16 in 3 of 12 operators; error of the outputs 0.0039 of their norm of 0.01 allowed")


def test_lines_to_copy_are_there(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.done.id}")
    wait_until_shown(browser)
    click(browser, "Use it in onnxruntime")
    (block,) = texts(browser, "#snippet-onnx")
    assert 'register_custom_ops_library("resnet50-onnx/libkintune_onnx.so")' in block
    press(browser, "#use-onnx button")
    wait_for(browser, "Copied", "Press Ctrl-C")


def test_a_search_shows_where_it_stands(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.tuning.id}")
    wait_until_shown(browser)
    assert heading(browser) == "resnet50: estimated 1.41 ms"
    said = text(browser)
    for words in (
        "so far 1.23x as fast as onnxruntime", "384 trials", "about 6 min left", "Finish with the best result",
        "Likely 1.05 ms to 1.45 ms at the end (0.60 to 0.83 of onnxruntime)",
    ):  # fmt: skip
        assert words in said, said
    lines = texts(browser, ".only-wide svg text")
    assert {"now", "target 1.20 ms"} <= set(lines)


def test_a_job_under_way_is_given_another_priority(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.tuning.id}")
    wait_until_shown(browser)
    field = browser.find_element(By.CSS_SELECTOR, "input[aria-label='Priority']")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("3", Keys.ENTER)
    wait_for(browser, "The service has accepted the request.")


def test_a_failure_says_why_and_what_to_do(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.failed.id}")
    wait_until_shown(browser)
    assert heading(browser) == "resnet50: failed"
    wait_for(browser, "It failed: resnet50: output 'y': 3 of 512 values differ")
    click(browser, "Log")
    wait_for(browser, "the last words of the job")
    click(browser, "Try again")
    wait_for(browser, "resnet50: queued")


def test_where_the_time_goes_is_shown_and_taken_along(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/jobs/{pages.done.id}")
    wait_until_shown(browser)
    assert "13 kernel calls take" in texts(browser, "#profile")[0]
    assert len(texts(browser, "#profile .track.run i")) == 14  # the calls, and what is between them
    assert len(texts(browser, "#profile tbody tr")) == 13
    press(browser, "#profile tbody tr summary")
    wait_for(browser, "compiled as conv2d + add + relu")
    trace, page = (
        read(browser, lambda part, words=words: part.find_element(By.LINK_TEXT, words).get_attribute("href"))
        for words in ("Trace for Perfetto", "Profile (HTML)")
    )
    assert trace is not None
    assert page is not None
    with urllib.request.urlopen(trace) as answer:
        assert answer.headers["Content-Disposition"] == 'attachment; filename="resnet50.trace.json"'
        assert trace_problems(answer.read()) == []
    with urllib.request.urlopen(page) as answer:
        assert b"layer1/conv0 + BN + Relu" in answer.read()


def test_the_files_of_a_job_are_deleted(pages: Pages, browser: webdriver.Chrome) -> None:
    with urllib.request.urlopen(f"{pages.url}/api/v1/jobs?text=mobilenet_v2&limit=200") as answer:
        job = json.load(answer)["jobs"][-1]["id"]
    browser.get(f"{pages.url}/jobs/{job}")
    wait_until_shown(browser)
    assert "Take it with you" in text(browser)
    click(browser, "Delete its files")
    click(browser, "Keep them")
    wait_for(browser, "Delete its files")
    assert "Take it with you" in text(browser)
    click(browser, "Delete its files")
    wait_for(browser, "cannot be restored; the report stays")
    click(browser, "Delete them for good")
    wait_for(browser, "Its executable and its log were removed on")
    said = text(browser)
    assert "Take it with you" not in said
    assert "Delete its files" not in said
    assert heading(browser).startswith("mobilenet_v2: ")
    with pytest.raises(urllib.error.HTTPError, match="410"):
        urllib.request.urlopen(f"{pages.url}/api/v1/jobs/{job}/executable")
