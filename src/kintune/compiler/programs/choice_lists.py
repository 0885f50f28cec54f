"""The open choices of a program that is written as a whole: a list of values for each axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kintune.core.candidate import Axis, Choice, Decision
from kintune.errors import BuildError

__all__ = ["ChoiceLists"]


class ChoiceLists(NamedTuple):
    """The choices of the program called `program`, one of `values` for each axis; a decision is a place in a list."""

    program: str
    values: tuple[tuple[Any, ...], ...]

    def axes(self) -> tuple[Axis, ...]:
        """The axes, with the values themselves, which must be numbers."""
        return tuple(map(_even_choice, self.values))

    def axes_of_places(self) -> tuple[Axis, ...]:
        """The axes, with the places of the values instead."""
        return tuple(_even_choice(range(len(values))) for values in self.values)

    def picked(self, decisions: Sequence[Decision]) -> tuple[Any, ...]:
        """The value of each axis.

        Raises:
            BuildError: there are more or fewer decisions than axes, or one is no place in its list.
        """
        if len(decisions) != len(self.values):
            raise BuildError(f"{self.program} has {len(self.values)} decisions, not {len(decisions)}")
        for axis, (values, decision) in enumerate(zip(self.values, decisions, strict=True)):
            if len(decision) != 1 or not 0 <= decision[0] < len(values):
                raise BuildError(f"{self.program} has {len(values)} choices on axis {axis}, not {decision}")
        return tuple(values[at] for values, (at,) in zip(self.values, decisions, strict=True))

    def decisions(self, picked: Iterable[Any]) -> tuple[Decision, ...]:
        """The decisions that pick these values."""
        return tuple((values.index(value),) for values, value in zip(self.values, picked, strict=True))

    def cheapest(self, count: int, cost: Callable[..., float | None]) -> list[tuple[Decision, ...]]:
        """The decisions of the `count` least costs, the least first.

        `cost` takes a value for each axis, and returns None where the values make no program.
        """
        ranked = []
        for places in itertools.product(*(range(len(values)) for values in self.values)):
            found = cost(*(values[at] for values, at in zip(self.values, places, strict=True)))
            if found is not None:
                ranked.append((found, places))
        return [tuple((at,) for at in places) for _, places in sorted(ranked)[:count]]


def _even_choice(values: Iterable[int]) -> Choice:
    """A choice whose values are equally likely."""
    listed = tuple(values)
    return Choice(listed, (1.0 / len(listed),) * len(listed))
