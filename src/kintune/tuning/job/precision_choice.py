"""The choice of a precision for each subgraph: the network is as fast as an error budget allows.

It has no side effects: it says which network to try next, and takes in the error that was measured at its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["MARGIN", "MOST_ALONE", "MOST_MIXTURES", "Alternative", "PrecisionChoice"]

MARGIN = 0.8
"""The share of the budget that is spent on the inputs of the choice, so that it holds on others."""

MOST_ALONE = 32
"""Alternatives that are tried alone, those which save most time; the others are not used where not all can be."""

MOST_MIXTURES = 6
"""Networks of some of the alternatives that are tried before none is used."""

_MOST_HALVINGS = 5  # networks that are tried when time is short
_STRICTER = 0.7  # of the limit, after the error on other inputs was too large
_MOST_REFUSALS = 3

_Items = frozenset["Alternative"]


class Alternative(NamedTuple):
    """A narrower precision in which a workload (by digest) is faster, and the time that saves a run of the network."""

    workload: str
    precision: str
    saved_us: float


class PrecisionChoice:
    """Chooses among alternatives, at most one a workload, with an error of at most `budget` at the outputs.

    All that save most are tried together.  If their error is too large, each alternative is tried alone.  Errors of
    several are assumed to add up as independent ones do, to the root of the sum of their squares, times a factor which
    each network that was tried corrects.  As many as fit are tried together, those first that save most time for
    the square of their error.  At most `most_alone` are tried alone.

    `attempt` has the precision of each workload to try next, by digest, without those that stay in fp32; it is None
    when the choice is made.  `settled` is the choice.
    """

    def __init__(self, alternatives: Sequence[Alternative], budget: float, most_alone: int = MOST_ALONE) -> None:
        ranked = sorted(alternatives, key=lambda a: (-a.saved_us, a.workload, a.precision))
        self._fastest: _Items = frozenset(_one_each(ranked))
        self._alone = tuple(ranked[:most_alone])
        self._limit = MARGIN * budget
        self._errors: dict[Alternative, float] = {}  # of those that were tried alone
        self._factor = 1.0
        self._tried: dict[_Items, float] = {}  # several together, with their error
        self._refusals = 0
        self._chosen: _Items = frozenset()
        self._attempt: _Items | None = self._fastest or None
        self._bounds: tuple[int, int] | None = None  # of the bisection: how many fit, and how many do not
        self._ranked: tuple[Alternative, ...] = ()
        self._halvings = 0

    @property
    def attempt(self) -> dict[str, str] | None:
        """The precisions to try next; None when the choice is made."""
        return None if self._attempt is None else _precisions(self._attempt)

    @property
    def settled(self) -> dict[str, str]:
        """The precisions that were chosen; empty where everything stays in fp32, or nothing was tried yet."""
        return _precisions(self._chosen)

    @property
    def limit(self) -> float:
        """The error that a network may have on the inputs of the choice."""
        return self._limit

    @property
    def tried(self) -> int:
        """How many networks were tried."""
        return len(self._errors) + len(self._tried)

    def observe(self, error: float) -> None:
        """Take in the error of the attempt; infinite if the network failed.

        Raises:
            ValueError: the choice is made.
        """
        if self._attempt is None:
            raise ValueError("the choice is made; nothing was to be tried")
        attempt, error = self._attempt, error if math.isfinite(error) else math.inf
        if self._bounds is not None:
            self._tried[attempt] = error
            low, high = self._bounds
            if error <= self._limit:
                self._chosen = attempt
            self._bounds = (len(attempt), high) if error <= self._limit else (low, len(attempt))
            self._halve(*self._bounds)
            return
        if self._tried and len(self._errors) < len(self._alone):
            self._errors[self._alone[len(self._errors)]] = error
        else:
            self._tried[attempt] = error
            if error <= self._limit:
                self._chosen, self._attempt = attempt, None
                return
            if len(attempt) == len(self._alone) == 1:
                self._attempt = None
                return
        self._go_on()

    def hurry(self) -> bool:
        """Try no more alternatives alone, for want of time; return whether any are left out for that.

        Instead, those that save most are tried together: half of them, then more or fewer.
        """
        if (
            self._attempt is None
            or not self._tried
            or self._bounds is not None
            or len(self._errors) == len(self._alone)
        ):
            return False
        self._alone = self._alone[: len(self._errors)]
        fitting = [each for each in self._fastest if self._errors.get(each, 0.0) <= self._limit]
        self._ranked = tuple(sorted(fitting, key=lambda a: (-a.saved_us, a)))
        self._bounds = (0, len(self._ranked) + (len(fitting) < len(self._fastest)))
        self._halvings = 0
        self._halve(*self._bounds)
        return True

    def _halve(self, low: int, high: int) -> None:
        """Try the middle between the most that are known to fit together and the fewest that are known not to."""
        self._halvings += 1
        enough = high - low <= 1 or self._halvings > _MOST_HALVINGS
        self._attempt = None if enough else frozenset(self._ranked[: (low + high) // 2])

    def give_up(self) -> None:
        """Try nothing more; what was not chosen by now stays in fp32."""
        self._attempt = None

    def refuse(self) -> None:
        """Take in that what was chosen has too large an error on other inputs; a stricter choice follows.

        Raises:
            ValueError: nothing is chosen.
        """
        if self._attempt is not None or not self._chosen:
            raise ValueError("nothing is chosen that could be refused")
        self._refusals += 1
        self._limit *= _STRICTER
        self._chosen, self._bounds = frozenset(), None
        if self._refusals <= _MOST_REFUSALS and len(self._alone) > 1:
            self._go_on()

    def _go_on(self) -> None:
        """Try the next alternative alone; or, when the errors of all are known, the most promising of several."""
        if len(self._errors) < len(self._alone):
            self._attempt = frozenset((self._alone[len(self._errors)],))
            return
        self._factor = max([1.0, *(self._missed(items, error) for items, error in self._tried.items())])
        found = self._affordable()
        while found in self._tried:  # its error was too large
            found -= {max(found, key=lambda a: (self._errors.get(a, math.inf), a))}
        if len(found) == 1:  # it was tried alone
            (only,) = found
            self._tried[found] = self._errors[only]
            self._chosen, self._attempt = found, None
        else:
            self._attempt = found if found and len(self._tried) <= MOST_MIXTURES else None

    def _affordable(self) -> _Items:
        """Returns alternatives whose errors together are expected within the limit, those of most worth first."""
        most = (self._limit / self._factor) ** 2
        spent = 0.0
        chosen: dict[str, Alternative] = {}
        for alternative in sorted(self._alone, key=self._worth, reverse=True):
            cost = self._errors[alternative] ** 2
            if alternative.workload not in chosen and spent + cost <= most:
                chosen[alternative.workload] = alternative
                spent += cost
        fitting = [alternative for alternative in self._alone if self._errors[alternative] <= self._limit]
        if fitting and fitting[0].saved_us > sum(each.saved_us for each in chosen.values()):
            return frozenset(fitting[:1])
        return frozenset(chosen.values())

    def _worth(self, alternative: Alternative) -> tuple[float, float]:
        """Returns the time saved for the square of the error, and the time saved, as a key for sorting."""
        error = self._errors[alternative]
        return (alternative.saved_us / error**2 if error else math.inf), alternative.saved_us

    def _missed(self, items: _Items, error: float) -> float:
        """Returns the error of several by what those of each predict; 1 where one of these is unknown."""
        told = math.sqrt(math.fsum(self._errors.get(item, math.inf) ** 2 for item in items))  # in whatever order
        return error / told if 0.0 < told < math.inf and error < math.inf else 1.0


def _one_each(ranked: Sequence[Alternative]) -> list[Alternative]:
    """Returns the first alternative of each workload."""
    first: dict[str, Alternative] = {}
    for alternative in ranked:
        first.setdefault(alternative.workload, alternative)
    return list(first.values())


def _precisions(items: _Items) -> dict[str, str]:
    return {item.workload: item.precision for item in sorted(items)}
