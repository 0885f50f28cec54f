"""The factors of a search as options, by the names that `Strategy` has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from kintune.core.config import Budget, Foresee, Strategy
from kintune.errors import InputError
from kintune.search.family import algorithms
from kintune_lab.experiment.option import Option, OptionKind, Value

__all__ = ["STRATEGY", "strategy_of"]

_DEFAULT = Strategy()
_NO_SURVEY = "none"
_LARGEST = 4096  # programs of a round


def _survey(value: Value) -> tuple[int, ...]:
    """The sizes of warm-up rounds, from text such as `1, 3, 4`.

    Raises:
        InputError: the text is no list of whole numbers in range.
    """
    if value == _NO_SURVEY:
        return ()
    try:
        levels = tuple(int(level) for level in str(value).split(","))
    except ValueError:
        levels = (0,)
    if not all(1 <= level <= _LARGEST for level in levels):
        raise InputError(f"must be {_NO_SURVEY!r} or whole numbers, separated by commas, of 1 to {_LARGEST}")
    return levels


STRATEGY: dict[str, Option] = {
    "families": Option(OptionKind.TEXT, _DEFAULT.families, "which subgraphs learn together", choices=algorithms()),
    "foresee": Option(OptionKind.TEXT, _DEFAULT.foresee, "what follows a full round", choices=get_args(Foresee)),
    "carry": Option(OptionKind.FLAG, _DEFAULT.carry, "carry good programs over to siblings"),
    "rules": Option(OptionKind.FLAG, _DEFAULT.rules, "let the rule propose programs"),
    "survey": Option(
        OptionKind.TEXT,
        ", ".join(map(str, _DEFAULT.survey)) or _NO_SURVEY,
        "programs that every subgraph gets first, for each round",
        check=_survey,
    ),
    "budget": Option(OptionKind.TEXT, _DEFAULT.budget, "who gets the next round", choices=get_args(Budget)),
    "round_size": Option(OptionKind.INTEGER, _DEFAULT.round_size, "programs of a full round", low=1, high=_LARGEST),
    "foresee_size": Option(
        OptionKind.INTEGER, _DEFAULT.foresee_size, "programs of a foresee round", low=1, high=_LARGEST
    ),
    "width": Option(OptionKind.INTEGER, _DEFAULT.width, "subgraphs that share a round", low=1, high=_LARGEST),
    "thrift": Option(OptionKind.FLAG, _DEFAULT.thrift, "let a program that is dear to build promise more than others"),
    "again": Option(
        OptionKind.INTEGER, _DEFAULT.again, "fastest programs that are timed again in each round", low=0, high=_LARGEST
    ),
    "draft": Option(OptionKind.FLAG, _DEFAULT.draft, "rank candidates in bulk by their decisions before any is made"),
}


def strategy_of(values: Mapping[str, Value | None]) -> Strategy:
    """The strategy that a cell's or a method's accepted values stand for."""
    factors: dict[str, object] = {name: values[name] for name in STRATEGY}
    factors["survey"] = _survey(values["survey"] or _NO_SURVEY)
    return msgspec.convert(factors, Strategy)
