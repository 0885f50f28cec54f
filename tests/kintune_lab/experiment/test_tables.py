from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import KintuneError
from kintune_lab.experiment.tables import by, check_tables, columns_of, joined, slug, to_csv, varying, words

SCALARS = st.one_of(
    st.none(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)

ROWS = st.lists(st.dictionaries(st.sampled_from("abcd"), SCALARS, min_size=1), max_size=6)


@given(ROWS)
def test_a_csv_reader_gets_every_value_back(rows: list[dict[str, object]]) -> None:
    text = to_csv(rows).decode()  # type: ignore[arg-type]
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(read) == len(rows)
    for row, got in zip(rows, read, strict=True):
        assert set(got) == set(columns_of(rows))  # type: ignore[arg-type]
        for column, text_value in got.items():
            value = row.get(column)
            if value is None:
                assert text_value == ""
            elif isinstance(value, bool):
                assert text_value == str(value).lower()
            else:
                assert type(value)(text_value) == value


def test_what_is_no_number_is_nothing() -> None:
    assert to_csv([{"a": math.nan, "b": math.inf, "c": 1.5}]) == b"a,b,c\n,,1.5\n"


def test_a_row_keeps_its_own_columns() -> None:
    (row,) = joined([{"trials": 8, "x": 1}], "id", {"trials": 64, "seed": 0})
    assert row == {"cell": "id", "asked_trials": 64, "seed": 0, "trials": 8, "x": 1}


@pytest.mark.parametrize(
    "tables", [{"a b": []}, {"cells": []}, {"methods": []}, {"a": [{"x": [1]}]}, {"a": [{"x": b""}]}, {"a/b": []}]
)
def test_what_is_no_table_is_refused(tables: dict[str, list[dict[str, object]]]) -> None:
    with pytest.raises(KintuneError):
        check_tables(tables)  # type: ignore[arg-type]


PANEL_ROWS = [{"model": "zoo:a", "size": 1, "on": True}, {"model": "zoo:b", "size": 1, "on": None}]


def test_rows_are_grouped_in_the_order_in_which_they_come() -> None:
    assert list(by(PANEL_ROWS, "model")) == [("zoo:a",), ("zoo:b",)]
    assert list(by(PANEL_ROWS)) == [()]


def test_what_varies_is_found() -> None:
    assert varying(PANEL_ROWS, ["model", "size", "on"], besides=["model"]) == ["on"]


def test_one_is_not_true() -> None:
    assert varying([{"a": 1}, {"a": True}], ["a"]) == ["a"]


def test_a_group_in_words() -> None:
    assert words(["model", "size", "on"], ["zoo:a", 1, None]) == "a, size 1, on not set"


def test_a_name_for_a_file() -> None:
    assert slug("Bert_Base?batch=8, size 1") == "bert_base-batch-8-size-1"
    assert slug("") == "all"
