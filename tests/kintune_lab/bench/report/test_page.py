from __future__ import annotations

from html.parser import HTMLParser

from kintune_lab.bench.report.page import page
from kintune_lab.experiment.section import BarChart, Grid, ReportSection

VOID = {"meta"}


class Balance(HTMLParser):
    """Keeps the tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_shows_texts_as_they_are() -> None:
    chart = BarChart("bars", "Bars", "x", ())
    text = page(
        "a <b>",
        ["1 < 2"],
        [
            ReportSection(
                "S & T", ("x <y>",), (Grid(("head",), (("<cell>",),)),), (chart, BarChart("not drawn", "", "", ()))
            )
        ],
        {"bars": "<svg></svg>"},
        {"The spec": 'name = "<a>"', "All": Grid(("h",), ())},
    )
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    for part in ("a &lt;b&gt;", "1 &lt; 2", "S &amp; T", "x &lt;y&gt;", "&lt;cell&gt;", "<svg></svg>", "name = &quot;"):
        assert part in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text
