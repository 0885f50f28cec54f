"""The open decisions of a program that is written as a whole: lists of values with names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kintune.core.candidate import Decision, NamedChoice
from kintune.errors import BuildError

__all__ = ["ChoiceLists"]


class ChoiceLists(NamedTuple):
    """The choices of the program called `program`: values by their name, as in `{"rows": (1, 2, 4), "parts": (1, 2)}`.

    Values that are picked together are tuples, under their names with a space between: `{"rows vectors": ((6, 4),
    (12, 2))}`.  A decision is the value itself, in integers, so the lists may grow, shrink and be reordered.  A name
    that is new, or means something else, needs a new version of the program.
    """

    program: str
    lists: Mapping[str, Sequence[Any]]

    @property
    def values(self) -> tuple[Sequence[Any], ...]:
        """The values of each axis."""
        return tuple(self.lists.values())

    def axes(self) -> tuple[NamedChoice, ...]:
        """The axes."""
        return tuple(
            NamedChoice(tuple(names.split()), tuple(map(_decision, values))) for names, values in self.lists.items()
        )

    def picked(self, decisions: Sequence[Decision]) -> tuple[Any, ...]:
        """The value of each axis.

        Raises:
            BuildError: there are more or fewer decisions than axes, or one is not among the values.
        """
        if len(decisions) != len(self.lists):
            raise BuildError(f"{self.program} has {len(self.lists)} decisions, not {len(decisions)}")
        found = []
        for (names, values), decision in zip(self.lists.items(), decisions, strict=True):
            value = next((each for each in values if _decision(each) == decision), None)
            if value is None:
                raise BuildError(f"{self.program} has no {names} = {' '.join(map(str, decision))} for this workload")
            found.append(value)
        return tuple(found)

    def decisions(self, picked: Iterable[Any]) -> tuple[Decision, ...]:
        """The decisions that pick these values."""
        return tuple(map(_decision, picked))

    def cheapest(self, count: int, cost: Callable[..., float | None]) -> list[tuple[Decision, ...]]:
        """The decisions of the `count` least costs, the least first; of equal ones, that whose values come first.

        `cost` takes a value for each axis, and returns None where the values make no program.
        """
        priced = ((cost(*picked), picked) for picked in itertools.product(*self.values))
        ranked = sorted(((found, picked) for found, picked in priced if found is not None), key=lambda each: each[0])
        return [self.decisions(picked) for _, picked in ranked[:count]]


def _decision(value: Any) -> Decision:
    """A value in integers."""
    return tuple(map(int, value)) if isinstance(value, tuple) else (int(value),)
