from __future__ import annotations

from kintune.service.portal.markup import MarkupColumn, link, name, table, tag


def test_values_are_escaped() -> None:
    assert link("<b>", 'x" onclick="y') == '<a href="x&quot; onclick=&quot;y">&lt;b&gt;</a>'


def test_attributes_that_are_not_given_are_left_out() -> None:
    assert tag("input", type="checkbox", checked=False, disabled=True, value=None) == '<input type="checkbox" disabled>'
    assert tag("p", "a", class_="b", aria_label="c") == '<p class="b" aria-label="c">a</p>'


def test_a_table_says_what_it_is_and_how_it_is_sorted() -> None:
    made = table("Jobs", [MarkupColumn("a", "num", sort="ascending")], [["1"]])
    assert '<caption class="hidden">Jobs</caption>' in made
    assert '<th scope="col" class="num" aria-sort="ascending">a</th>' in made
    assert '<td class="num" data-label="a">1</td>' in made


def test_columns_without_a_word_are_left_out() -> None:
    columns = [MarkupColumn("name", "head"), MarkupColumn("limit"), MarkupColumn("time", label="")]
    rows = [["a", "", "1"], ["b", "", ""]]
    made = table("Calls", columns, rows)
    assert "limit" not in made
    assert '<th scope="row">a</th><td>1</td>' in made
    assert '<th scope="col">limit</th>' in table("Calls", columns, rows, whole=True)


def test_long_names_are_broken_between_their_parts() -> None:
    assert name("a_b-c/d") == "a_<wbr>b-<wbr>c/<wbr>d"
    assert name("<_a> 1.5 -2") == "&lt;_<wbr>a&gt; 1.5 -<wbr>2"
