from __future__ import annotations

import math

import pytest

from kintune.errors import InputError
from kintune_lab.experiment.option import Kind, Option, spelled


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        (Option(Kind.INTEGER), 1.5, "must be a whole number"),
        (Option(Kind.INTEGER), True, "must be a whole number"),
        (Option(Kind.INTEGER), "1", "must be a whole number"),
        (Option(Kind.INTEGER), {"a": 1}, "must be a whole number"),
        (Option(Kind.INTEGER), [1], "must be a whole number"),
        (Option(Kind.NUMBER), "1", "must be a number"),
        (Option(Kind.NUMBER), math.nan, "must be a number"),
        (Option(Kind.NUMBER), math.inf, "must be a number"),
        (Option(Kind.NUMBER), True, "must be a number"),
        (Option(Kind.FLAG), 1, "must be true or false"),
        (Option(Kind.TEXT), 1, "must be a text"),
        (Option(Kind.MODEL), 1, "must be a model"),
        (Option(Kind.INTEGER), 10**20, r"must be less than 2\*\*63"),
        (Option(Kind.NUMBER), 10**400, r"must be less than 2\*\*63"),
        (Option(Kind.INTEGER, low=1), 0, "must be 1 or more"),
        (Option(Kind.NUMBER, high=0.5), 0.6, "must be 0.5 or less"),
        (Option(Kind.TEXT, choices=("op", "hash")), "friends", "must be one of op, hash"),
    ],
)
def test_what_is_wrong_with_a_value(option: Option, value: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        option.accept(value)


def test_a_whole_number_is_a_number() -> None:
    taken = Option(Kind.NUMBER, low=0).accept(2)
    assert (taken, type(taken)) == (2.0, float)


def test_a_check_of_its_own_has_the_last_word() -> None:
    def odd(value: object) -> None:
        if value == 2:
            raise InputError("must be odd")

    option = Option(Kind.INTEGER, check=odd)
    assert option.accept(3) == 3
    with pytest.raises(InputError, match="must be odd"):
        option.accept(2)


def test_values_are_spelled_as_in_a_spec() -> None:
    assert [spelled(value) for value in (True, "op", 64, 0.5)] == ["true", '"op"', "64", "0.5"]
