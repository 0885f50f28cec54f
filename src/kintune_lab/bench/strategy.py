"""The factors of a search as options, by the names that `Strategy` has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kintune.core.config import Strategy
from kintune.errors import InputError
from kintune_lab.experiment.option import Option, OptionKind, Value, option_of

__all__ = ["STRATEGY", "strategy_of"]

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


_SURVEY = {
    "kind": OptionKind.TEXT,
    "default": ", ".join(map(str, Strategy().survey)) or _NO_SURVEY,
    "check": _survey,
}
_CHANGES: dict[str, dict[str, Any]] = {
    "survey": _SURVEY,
    **{name: {"high": _LARGEST} for name in ("round_size", "foresee_size", "width", "again")},
}

STRATEGY: dict[str, Option] = {
    name: option_of(Strategy, name, **_CHANGES.get(name, {})) for name in Strategy.__struct_fields__
}


def strategy_of(values: Mapping[str, Value | None]) -> Strategy:
    """The strategy that a cell's or a method's accepted values stand for."""
    factors: dict[str, object] = {name: values[name] for name in STRATEGY}
    factors["survey"] = _survey(values["survey"] or _NO_SURVEY)
    return msgspec.convert(factors, Strategy)
