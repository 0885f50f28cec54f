from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.terminal.table import Column, columns_of, shortened, table_lines

COLUMNS = (Column("name", yields=True), Column("size", right=True), Column("what it is", yields=True))
ROWS = [["resnet18", "11.7 M", "classifies images"], ["gpt2", "124 M", "predicts the next token"]]


def test_columns_are_aligned() -> None:
    assert table_lines(COLUMNS, ROWS) == [
        "name        size  what it is",
        "resnet18  11.7 M  classifies images",
        "gpt2       124 M  predicts the next token",
    ]


def test_columns_that_yield_are_shortened_first() -> None:
    assert table_lines(COLUMNS, ROWS, 30) == [
        "name        size  what it is",
        "resnet18  11.7 M  classifie...",
        "gpt2       124 M  predicts ...",
    ]


@given(
    st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=5),
    st.integers(min_value=7, max_value=120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    lines = table_lines(COLUMNS, rows, width)
    assert len(lines) == len(rows) + 1
    assert all(columns_of(line) <= width and line.isprintable() for line in lines)


def test_optional_columns_are_left_out_before_others_are_shortened() -> None:
    columns = (Column("run"), Column("made", optional=True), Column("spent", optional=True), Column("won"))
    rows = [["abcdef", "2026-11-26", "12:00", "1.22x"]]
    assert table_lines(columns, rows, 40)[1] == "abcdef  2026-11-26  12:00  1.22x"
    assert table_lines(columns, rows, 31)[1] == "abcdef  2026-11-26  1.22x"
    assert table_lines(columns, rows, 20)[1] == "abcdef  1.22x"
    assert len(table_lines(columns, rows, 11)[1]) <= 11


def test_what_others_have_named_cannot_steer_the_terminal() -> None:
    assert table_lines((Column("name"),), [["a\x1b[2Jb\nc"]])[1] == "a [2Jb c"


@pytest.mark.parametrize(("width", "said"), [(9, "predictor"), (8, "predi..."), (3, "pre"), (0, "")])
def test_a_text_is_shortened(width: int, said: str) -> None:
    assert shortened("predictor", width) == said


def test_wide_characters_take_two_columns() -> None:
    columns = (Column("model", yields=True), Column("state"))
    lines = table_lines(columns, [["图像分类", "done"], ["net", "done"]])
    assert lines == ["model     state", "图像分类  done", "net       done"]
    assert table_lines(columns, [["图像分类的一个很大的模型", "done"]], 19) == [
        "model         state",
        "图像分类...   done",
    ]
    assert [columns_of(text) for text in ("net", "图像", "e\u0301")] == [3, 4, 1]
