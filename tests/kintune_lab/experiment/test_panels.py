from __future__ import annotations

from kintune_lab.experiment.panels import by, slug, varying, words

ROWS = [{"model": "zoo:a", "size": 1, "on": True}, {"model": "zoo:b", "size": 1, "on": None}]


def test_rows_are_grouped_in_the_order_in_which_they_come() -> None:
    assert list(by(ROWS, "model")) == [("zoo:a",), ("zoo:b",)]
    assert list(by(ROWS)) == [()]


def test_what_varies_is_found() -> None:
    assert varying(ROWS, ["model", "size", "on"], besides=["model"]) == ["on"]


def test_one_is_not_true() -> None:
    assert varying([{"a": 1}, {"a": True}], ["a"]) == ["a"]


def test_a_group_in_words() -> None:
    assert words(["model", "size", "on"], ["zoo:a", 1, None]) == "a, size 1, on not set"


def test_a_name_for_a_file() -> None:
    assert slug("Bert_Base?batch=8, size 1") == "bert_base-batch-8-size-1"
    assert slug("") == "all"
