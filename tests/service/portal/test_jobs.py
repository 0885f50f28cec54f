from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from kintune.service.job_status import JobStatus
from kintune.service.portal.jobs import JobQuery, _flags
from kintune.service.portal.outcomes import Signs
from tests.service.portal.conftest import Pages
from tests.support.browsing import can_be_pressed, click, press, text, texts, wait_for, wait_until_shown, widen

browsed = pytest.mark.needs("chromium")


def rows(browser: webdriver.Chrome) -> list[str]:
    return texts(browser, "tbody tr")


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ({}, "/"),
        ({"q": " resnet50 "}, "/?q=resnet50"),
        ({"sort": "gain", "page": "3"}, "/?sort=gain"),
        ({"sort": "nonsense", "page": "-1", "everybody": "x"}, "/"),
        ({"device": "gpu", "everybody": "1"}, "/?device=gpu&everybody=1"),
    ],
)
def test_an_address_says_what_is_listed(query: dict[str, str], address: str) -> None:
    assert JobQuery(query).address() == address


def test_states_are_asked_for_in_groups() -> None:
    query = JobQuery({}, ["running", "failed", "nonsense"])
    assert query.address(page=2) == "/?state=running&state=failed&page=2"
    assert query.filter().states == {
        JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.FAILED,
    }  # fmt: skip


def test_sorting_again_turns_the_order_round() -> None:
    query = JobQuery({"sort": "gain"})
    assert [query.sorted_by(name) for name in ("gain", "latency", "model")] == ["-gain", "-latency", "model"]


@browsed
def test_jobs_are_searched_sorted_and_paged(pages: Pages, browser: webdriver.Chrome) -> None:
    widen(browser, 1280)
    browser.get(pages.url)
    wait_until_shown(browser)
    wait_for(browser, "1 to 25 of 30")
    click(browser, "Older")
    wait_for(browser, "26 to 30 of 30")
    assert texts(browser, ".number[aria-current]") == ["2"]
    assert browser.current_url.endswith("page=2")
    search = browser.find_element(By.ID, "q")
    search.send_keys("resnet50", Keys.ENTER)
    wait_for(browser, "1 to 4 of 4")
    assert "q=resnet50" in browser.current_url
    click(browser, "Of the fastest runtime")
    wait_for(browser, "Of the fastest runtime ↑")
    assert "0.60" in rows(browser)[0]
    assert "of onnxruntime's 1.74 ms" in rows(browser)[0]
    press(browser, "input[value=failed]")
    wait_for(browser, "1 to 1 of 1")
    assert "3 of 512 values differ" in rows(browser)[0]


@browsed
def test_two_jobs_are_chosen_and_compared(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/?q=resnet50&state=done")
    wait_until_shown(browser)
    assert not can_be_pressed(browser, "do-compare")
    press(browser, "input[data-every]")
    wait_for(browser, "2 chosen")
    press(browser, "input[data-every]")
    wait_for(browser, "none chosen")
    for job in (pages.done, pages.narrow):
        press(browser, f"#choose-{job.id}")
    wait_for(browser, "2 chosen")
    press(browser, "#do-compare")
    wait_for(browser, "Results side by side", "the fastest")
    wait_for(browser, "layer1/conv0 + BN + Relu")


@browsed
def test_several_jobs_are_cancelled_at_once(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/?q=resnet50")
    wait_until_shown(browser)
    for job in (pages.tuning, pages.failed):
        press(browser, f"#choose-{job.id}")
    wait_for(browser, "2 chosen")
    press(browser, "#do-cancel")
    wait_for(browser, "1 job: it will be done")
    assert "could not be changed" not in text(browser)


@browsed
def test_files_of_several_jobs_are_deleted_once_that_is_confirmed(pages: Pages, browser: webdriver.Chrome) -> None:
    browser.get(f"{pages.url}/?q=resnet50")
    wait_until_shown(browser)
    assert not can_be_pressed(browser, "do-delete-files")
    for job in (pages.tuning, pages.failed):
        press(browser, f"#choose-{job.id}")
    wait_for(browser, "2 chosen")
    press(browser, "#do-delete-files")
    wait_for(browser, "Executables and logs of these jobs cannot be restored; the reports stay.")
    assert texts(browser, "dialog li") == [f"resnet50, {pages.failed.id}"]  # the other one is not over
    click(browser, "Keep them")
    wait_for(browser, "2 chosen")  # still
    press(browser, "#do-delete-files")
    click(browser, "Delete them for good")
    wait_for(browser, "1 job: executable and log are deleted, the report stays")
    assert browser.current_url.startswith(f"{pages.url}/?q=resnet50&")


def test_flagged_results_have_signs() -> None:
    assert _flags(Signs()) == []
    signs = Signs(uncertain=("a", "b"), not_compared=("c",))
    assert _flags(signs) == [("uncertain", "a\nb"), ("not compared", "c")]
