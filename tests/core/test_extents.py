from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.extents import Formula, Quotient, fit_formula

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = [{"n": n} for n in (12, 17, 40, 41, 63, 100)]
TWO = [{"h": h, "w": w} for h, w in ((320, 352), (352, 640), (640, 320), (416, 416), (1280, 960), (768, 1216))]
KNOWN = [Quotient((("h", 1),), 0, 8), Quotient((("w", 1),), 0, 8)]


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (lambda _: 7, "7"),
        (lambda n: n, "n"),
        (lambda n: 3 * n + 1, "(3 * n + 1)"),
        (lambda n: 512 - n, "(-1 * n + 512)"),
        (lambda n: (n - 3) // 2 + 1, "(n - 1) // 2"),
        (lambda n: ((n - 3) // 2 + 1 - 3) // 2 + 1, "(n - 3) // 4"),
        (lambda n: -(-n // 16), "(n + 15) // 16"),
        (lambda n: 64 * (n // 4), "64 * (n // 4)"),
        (lambda n: 3 * (n // 2), "3 * (n // 2)"),
        (lambda n: 8 * n * n, "8 * n * n"),
        (lambda n: n * n + n, "n + n * n"),
    ],
)
def test_a_formula_is_found_from_values(extent: Callable[[int], int], text: str) -> None:
    formula, rounds = _sure(extent, ONE)
    assert str(formula) == text
    assert rounds <= 4
    assert [formula.value({"n": n}) for n in range(1, 600)] == [extent(n) for n in range(1, 600)]


def test_several_dimensions_and_known_quotients_make_products() -> None:
    values = [3 * (point["h"] // 8) * (point["w"] // 8) + 2 * point["h"] for point in TWO]
    found = fit_formula(values, TWO, KNOWN)
    assert found is not None
    formula, _ = found
    assert formula.names == {"h", "w"}
    assert formula.value({"h": 71, "w": 33}) == 3 * 8 * 4 + 142


def test_numbers_of_another_form_have_none() -> None:
    assert fit_formula([2**number for number in range(6)], ONE) is None


def test_a_dimension_that_never_changes_has_no_part() -> None:
    found = fit_formula([5, 8, 11, 14], [{"m": 4, "n": n} for n in (4, 7, 10, 13)])
    assert found is not None
    assert str(found.formula) == "(n + 1)"


def test_each_further_point_halves_the_doubt() -> None:
    formula, rounds = _sure(lambda n: (n + 16) // 32, [{"n": n} for n in (64, 160, 224, 288)])
    assert str(formula) == "(n + 16) // 32"
    assert rounds <= 6


def test_points_that_lie_together_tell_no_quotient() -> None:
    """Its step would be in doubt."""
    assert fit_formula([1, 1, 2], [{"n": 8}, {"n": 12}, {"n": 20}]) is None


def test_a_few_points_do_not_decide() -> None:
    """Formulas have fewer unknowns than there are points, or a further point is asked for."""
    assert fit_formula([3, 1000, 7], [{"n": 1}, {"n": 2}, {"n": 3}]) is None
    found = fit_formula([3, 6, 12], [{"n": 12}, {"n": 24}, {"n": 48}])
    assert found is not None
    assert str(found.formula) == "n // 4"
    assert found.doubt is not None
    assert found.doubt["n"] % 4


@given(st.integers(1, 9), st.integers(-8, 8), st.sampled_from([1, 2, 4, 8, 32]), st.integers(1, 64))
def test_quotients_are_found_again(step: int, constant: int, divisor: int, factor: int) -> None:
    """After a few further points there is no doubt, and the formula is right between the first points."""
    quotient = Quotient((("n", step),), constant, divisor)
    formula, rounds = _sure(lambda n: factor * quotient.value({"n": n}), [{"n": n} for n in (16, 21, 40, 63, 100)])
    assert rounds <= 12  # all steps, constants and divisors from here, with four factors: 11 at most
    for n in range(16, 101):
        assert formula.value({"n": n}) == factor * quotient.value({"n": n})


def _sure(extent: Callable[[int], int], points: list[dict[str, int]]) -> tuple[Formula, int]:
    """The formula after values were asked for until none is in doubt, and how often."""
    for rounds in range(20):
        found = fit_formula([extent(point["n"]) for point in points], points)
        assert found is not None
        if found.doubt is None:
            return found.formula, rounds
        points = [*points, dict(found.doubt)]
    raise AssertionError("still in doubt")


def test_an_extent_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        Formula.of("n").value({"m": 3})
    assert Formula.of(5).value({}) == 5
    assert str(Formula(())) == "0"
