"""The factors of a search as options, by the names that `Strategy` has for them."""

from __future__ import annotations

from typing import get_args

from kintune.bench.option import Kind, Option
from kintune.search.family import algorithms
from kintune.search.strategy import Budget, Foresee, Strategy

__all__ = ["STRATEGY"]

_DEFAULT = Strategy()

STRATEGY: dict[str, Option] = {
    "families": Option(Kind.TEXT, _DEFAULT.families, "which subgraphs learn together", choices=algorithms()),
    "foresee": Option(Kind.TEXT, _DEFAULT.foresee, "what follows a full round", choices=get_args(Foresee)),
    "carry": Option(Kind.FLAG, _DEFAULT.carry, "carry good programs over to siblings"),
    "rules": Option(Kind.FLAG, _DEFAULT.rules, "let the rule propose programs"),
    "survey": Option(Kind.FLAG, _DEFAULT.survey, "give every subgraph a few programs first"),
    "budget": Option(Kind.TEXT, _DEFAULT.budget, "who gets the next round", choices=get_args(Budget)),
    "round_size": Option(Kind.INTEGER, _DEFAULT.round_size, "programs of a full round", low=1, high=4096),
    "foresee_size": Option(Kind.INTEGER, _DEFAULT.foresee_size, "programs of a foresee round", low=1, high=4096),
    "width": Option(Kind.INTEGER, _DEFAULT.width, "subgraphs that share a round", low=1, high=4096),
}
"""`msgspec.convert({name: values[name] for name in STRATEGY}, Strategy)` makes a strategy of a cell's or a method's
values."""
