"""The page is well-formed, needs nothing from outside, and says what the profile says."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from kintune.core.profile import Profile
from kintune.profiling.page import html_page
from tests.support.profiles import PROFILE, alone, in_parts

_EMPTY = {"meta", "br"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [name for name, _ in attrs if name in ("src", "href")]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("profile", [PROFILE, alone(), in_parts()], ids=["beside", "alone", "parts"])
def test_tags_are_closed_and_nothing_is_loaded(profile: Profile) -> None:
    reader = Reader()
    reader.feed(html_page(profile).decode())
    assert reader.open == []
    assert reader.links == []


def test_names_are_text() -> None:
    page = html_page(PROFILE).decode()
    assert "relu&lt;2&gt;" in page
    assert "a &lt;note&gt;" in page
    assert "<note>" not in page


def test_what_is_said() -> None:
    reader = Reader()
    reader.feed(html_page(PROFILE).decode())
    text = " ".join(reader.text)
    for part in ("550 us a run", "3 kernel calls take 500 us", "arithmetic", "75%", ">100%", "ReorderOutput", "0.50"):
        assert part in text
    assert "150 us for 2 calls, 81 us" in text


def test_parts_are_told_apart() -> None:
    reader = Reader()
    reader.feed(html_page(in_parts()).decode())
    text = " ".join(reader.text)
    for part in ("kintune, region 1", "in onnxruntime 80 us", "region 1 (2 nodes)", "430 us", "not run"):
        assert part in text
