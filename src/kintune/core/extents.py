"""Formulas of extents: how a size in a network follows from those of the open dimensions of its inputs.

A formula is a sum of products of quotients, as in `4 * ((n + 3) // 2) * m + 1`.  Convolutions, pools and pieces make
quotients, and quotients of quotients are quotients again.  `fit_formula` finds a formula from values at some points.
Where other formulas of the form have these values, too, it names a further point that tells them apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

__all__ = ["Fit", "Formula", "Product", "Quotient", "fit_formula"]

_DIVISORS = (*range(2, 17), 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 256, 320, 512)
_MOST_FACTORS = 12  # that are tried in products
_MOST_EXTENTS = 4  # of one product: rows of a batch of images are numbered through


class Quotient(msgspec.Struct, frozen=True, order=True):
    """`(steps[0] * extent[0] + ... + constant) // divisor`, rounded down; `steps` have the names of open dimensions."""

    steps: tuple[tuple[str, int], ...]
    constant: int = 0
    divisor: int = 1

    def value(self, extents: Mapping[str, int]) -> int:
        """Its value for these extents."""
        return (sum(step * extents[name] for name, step in self.steps) + self.constant) // self.divisor

    def __str__(self) -> str:
        text = " + ".join(name if step == 1 else f"{step} * {name}" for name, step in self.steps)
        if self.constant > 0:
            text += f" + {self.constant}"
        elif self.constant < 0:
            text += f" - {-self.constant}"
        alone = len(self.steps) == 1 and not self.constant
        whole = text if alone and (self.divisor == 1 or self.steps[0][1] == 1) else f"({text})"
        return whole if self.divisor == 1 else f"{whole} // {self.divisor}"


class Product(msgspec.Struct, frozen=True, order=True):
    """A coefficient times quotients; without quotients it is a number."""

    coefficient: int
    factors: tuple[Quotient, ...] = ()

    def value(self, extents: Mapping[str, int]) -> int:
        """Its value for these extents."""
        return self.coefficient * math.prod(factor.value(extents) for factor in self.factors)

    def __str__(self) -> str:
        factors = [f"({each})" if each.divisor > 1 and len(self.factors) > 1 else str(each) for each in self.factors]
        shown = [str(self.coefficient)] if self.coefficient != 1 or not factors else []
        if shown and len(factors) == 1 and self.factors[0].divisor > 1:
            factors = [f"({factors[0]})"]
        return " * ".join(shown + factors)


class Formula(msgspec.Struct, frozen=True):
    """A sum of products."""

    products: tuple[Product, ...]

    @classmethod
    def of(cls, extent: int | str) -> Formula:
        """A number, or the extent of an open dimension."""
        if isinstance(extent, int):
            return cls((Product(extent),))
        return cls((Product(1, (Quotient(((extent, 1),)),)),))

    def value(self, extents: Mapping[str, int]) -> int:
        """Its value for these extents.

        Raises:
            KeyError: an open dimension has no extent.
        """
        return sum(product.value(extents) for product in self.products)

    @property
    def names(self) -> frozenset[str]:
        """The open dimensions that it depends on."""
        return frozenset(name for each in self.products for factor in each.factors for name, _ in factor.steps)

    @property
    def alone(self) -> str:
        """The open dimension that it is equal to; empty for any other formula."""
        (name,) = self.names if len(self.names) == 1 else ("",)
        return name if name and self == Formula.of(name) else ""

    def __str__(self) -> str:
        return " + ".join(map(str, self.products)) or "0"


class Fit(NamedTuple):
    """A formula that has the given values at the given points.

    `doubt` is a point between them, at which another formula of the same form that has these values has another one;
    None where there is none.  With the value there, half of the other formulas are gone.
    """

    formula: Formula
    doubt: Mapping[str, int] | None = None


def fit_formula(
    values: Sequence[int], points: Sequence[Mapping[str, int]], known: Iterable[Quotient] = ()
) -> Fit | None:
    """Find a formula that has these values at these points, one value a point; None if none of these forms has them.

    A sum of at most two products and a number, of at most two factors each; factors are the open dimensions, `known`
    quotients (those of other sizes in the same network), and quotients of one dimension.  Or a product of up to four
    open dimensions, and a number.  The formula with the fewest parts is taken.  It has fewer unknown numbers than there
    are points, so the points check it, too.
    """
    if len(set(values)) == 1:
        return Fit(Formula.of(values[0]))
    names = list(dict.fromkeys(name for point in points for name in point))
    common = math.gcd(*values)
    fits = []
    for divisor, shared, name in itertools.product((1, *_DIVISORS), {1: None, common: None}, names):
        if found := _quotient([value // shared for value in values], points, name, divisor):
            quotient, doubt = found
            further = None if doubt is None else {**points[0], name: doubt}
            fits.append(Fit(Formula((Product(shared, (quotient,)),)), further))
    if fits:
        formula, doubted = fits[0]
        return Fit(formula, doubted or _telling(formula, [each.formula for each in fits[1:]], points))
    halves = (Quotient(((name, 1),), 0, 2) for name in names)  # of which the rest by two is made
    plain = [Quotient(((name, 1),)) for name in names]
    factors = list(dict.fromkeys([*plain, *halves, *known]))[:_MOST_FACTORS]
    pairs = list(_monomials(factors))
    many = [Product(1, each) for count in range(3, _MOST_EXTENTS + 1) for each in itertools.combinations(plain, count)]
    columns = {each: [each.value(point) for point in points] for each in (*pairs, *many)}
    for count, tried in ((1, columns), (2, pairs)):
        if count + 1 >= len(points):
            return None
        for chosen in itertools.combinations(tried, count):
            if solved := _solved(values, [columns[each] for each in chosen]):
                constant, *coefficients = solved
                products = [Product(by, each.factors) for each, by in zip(chosen, coefficients, strict=True)]
                return Fit(Formula((*products, *([Product(constant)] if constant else []))))
    return None


def _telling(
    formula: Formula, others: Sequence[Formula], points: Sequence[Mapping[str, int]]
) -> Mapping[str, int] | None:
    """A point at which most of the others differ from the formula; None if none of them does between the points."""
    first = points[0]
    most, telling = 0, None
    for name in first:
        extents = [point[name] for point in points]
        for extent in range(min(extents), max(extents)):
            point = {**first, name: extent}
            differing = sum(each.value(point) != formula.value(point) for each in others)
            if differing > most:
                most, telling = differing, point
    return telling


def _monomials(factors: Sequence[Quotient]) -> Iterator[Product]:
    for factor in factors:
        yield Product(1, (factor,))
    for pair in itertools.combinations_with_replacement(factors, 2):
        yield Product(1, pair)


def _quotient(
    values: Sequence[int], points: Sequence[Mapping[str, int]], name: str, divisor: int
) -> tuple[Quotient, int | None] | None:
    """The quotient of one dimension by `divisor` that has these values, and an extent that is in doubt.

    Its step is not in doubt, since the points lie further apart than twice the divisor.
    """
    at = [point[name] for point in points]
    low, high = min(range(len(at)), key=at.__getitem__), max(range(len(at)), key=at.__getitem__)
    width = at[high] - at[low]
    if not width or (divisor > 1 and 2 * divisor > width):
        return None
    step = (2 * (values[high] - values[low]) * divisor + width) // (2 * width)
    if math.gcd(step, divisor) > 1:
        return None
    # value <= (step * n + constant) / divisor < value + 1
    least = max(divisor * value - step * n for value, n in zip(values, at, strict=True))
    most = min(divisor * (value + 1) - 1 - step * n for value, n in zip(values, at, strict=True))
    if least > most:
        return None
    doubt = _between(step, divisor, (least, most), range(at[low], at[high]))
    return Quotient(((name, step),), _usual(least, most, divisor), divisor), doubt


def _usual(least: int, most: int, divisor: int) -> int:
    """The constant of an interval that occurs most: none, that of rounding up, or the one nearest to zero."""
    for usual in (0, divisor - 1):
        if least <= usual <= most:
            return usual
    return min(least, most, key=abs)


def _between(step: int, divisor: int, constants: tuple[int, int], extents: range) -> int | None:
    """An extent at which about half of the quotients with these constants differ from the others, if there is one."""
    least, most = constants
    middles = sorted(range(least + 1, most + 1), key=lambda constant: abs(2 * constant - least - most))
    for middle in middles:
        residue = -middle * pow(step, -1, divisor) % divisor
        first = extents.start + (residue - extents.start) % divisor
        if first in extents:
            return first
    return None


def _solved(values: Sequence[int], columns: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Whole numbers `c` with `c[0] + c[1] * columns[0] + ... == values`; None if there are none."""
    first, *others = zip(*columns, values, strict=True)
    matrix = [[each - base for each, base in zip(row, first, strict=True)] for row in others]
    for column in range(len(columns)):
        pivot = next((row for row in range(column, len(matrix)) if matrix[row][column]), None)
        if pivot is None:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column]
        for row, own in enumerate(matrix):
            if row != column and own[column]:
                matrix[row] = [head[column] * each - own[column] * above for each, above in zip(own, head, strict=True)]
    if any(row[-1] for row in matrix[len(columns) :]):
        return None
    found = []
    for column, own in enumerate(matrix[: len(columns)]):
        coefficient, rest = divmod(own[-1], own[column])
        if rest:
            return None
        found.append(coefficient)
    return first[-1] - sum(by * each for by, each in zip(found, first[:-1], strict=True)), *found
