from __future__ import annotations

import math

import pytest

from kintune.errors import InputError
from kintune_lab.experiment.option import Option, OptionKind, spelled


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        (Option(OptionKind.INTEGER), 1.5, "must be a whole number"),
        (Option(OptionKind.INTEGER), True, "must be a whole number"),
        (Option(OptionKind.INTEGER), "1", "must be a whole number"),
        (Option(OptionKind.INTEGER), {"a": 1}, "must be a whole number"),
        (Option(OptionKind.INTEGER), [1], "must be a whole number"),
        (Option(OptionKind.NUMBER), "1", "must be a number"),
        (Option(OptionKind.NUMBER), math.nan, "must be a number"),
        (Option(OptionKind.NUMBER), math.inf, "must be a number"),
        (Option(OptionKind.NUMBER), True, "must be a number"),
        (Option(OptionKind.FLAG), 1, "must be true or false"),
        (Option(OptionKind.TEXT), 1, "must be a text"),
        (Option(OptionKind.MODEL), 1, "must be a model"),
        (Option(OptionKind.INTEGER), 10**20, r"must be less than 2\*\*63"),
        (Option(OptionKind.NUMBER), 10**400, r"must be less than 2\*\*63"),
        (Option(OptionKind.INTEGER, low=1), 0, "must be 1 or more"),
        (Option(OptionKind.NUMBER, high=0.5), 0.6, "must be 0.5 or less"),
        (Option(OptionKind.TEXT, choices=("op", "hash")), "friends", "must be one of op, hash"),
    ],
)
def test_what_is_wrong_with_a_value(option: Option, value: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        option.accept(value)


def test_a_whole_number_is_a_number() -> None:
    taken = Option(OptionKind.NUMBER, low=0).accept(2)
    assert (taken, type(taken)) == (2.0, float)


def test_a_check_of_its_own_has_the_last_word() -> None:
    def odd(value: object) -> None:
        if value == 2:
            raise InputError("must be odd")

    option = Option(OptionKind.INTEGER, check=odd)
    assert option.accept(3) == 3
    with pytest.raises(InputError, match="must be odd"):
        option.accept(2)


def test_values_are_spelled_as_in_a_spec() -> None:
    assert [spelled(value) for value in (True, "op", 64, 0.5)] == ["true", '"op"', "64", "0.5"]
