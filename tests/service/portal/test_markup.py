from __future__ import annotations

from kintune.service.portal.markup import Heading, link, table, tag


def test_values_are_escaped() -> None:
    assert link("<b>", 'x" onclick="y') == '<a href="x&quot; onclick=&quot;y">&lt;b&gt;</a>'


def test_attributes_that_are_not_given_are_left_out() -> None:
    assert tag("input", type="checkbox", checked=False, disabled=True, value=None) == '<input type="checkbox" disabled>'
    assert tag("p", "a", class_="b", aria_label="c") == '<p class="b" aria-label="c">a</p>'


def test_a_table_says_what_it_is_and_how_it_is_sorted() -> None:
    made = table("Jobs", [Heading("a", True, "ascending")], ["<tr></tr>"])
    assert '<caption class="hidden">Jobs</caption>' in made
    assert '<th scope="col" class="num" aria-sort="ascending">a</th>' in made
