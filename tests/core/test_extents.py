from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.extents import Formula, Product, Quotient, _between, _solved, _usual, fit_formula

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


N, N_BY_TWO, M = Quotient((("n", 1),)), Quotient((("n", 1),), 0, 2), Quotient((("m", 1),))


@pytest.mark.parametrize(
    ("quotient", "text"),
    [
        (N, "n"),
        (Quotient((("n", 2),)), "2 * n"),
        (Quotient((("n", 1),), 3), "(n + 3)"),
        (Quotient((("n", 2),), -3), "(2 * n - 3)"),
        (Quotient((("n", 1), ("m", 4))), "(n + 4 * m)"),
        (N_BY_TWO, "n // 2"),
        (Quotient((("n", 3),), 0, 2), "(3 * n) // 2"),
        (Quotient((("n", 1),), -1, 2), "(n - 1) // 2"),
        (Quotient((("n", 1), ("m", 1)), 0, 4), "(n + m) // 4"),
    ],
)
def test_a_quotient_is_written_with_the_parentheses_that_it_needs(quotient: Quotient, text: str) -> None:
    assert str(quotient) == text
    assert quotient.value({"n": 23, "m": 5}) == eval(text, {"n": 23, "m": 5})


@pytest.mark.parametrize(
    ("product", "text"),
    [
        (Product(1), "1"),
        (Product(-3), "-3"),
        (Product(1, (N,)), "n"),
        (Product(2, (N,)), "2 * n"),
        (Product(1, (N_BY_TWO,)), "n // 2"),
        (Product(5, (N_BY_TWO,)), "5 * (n // 2)"),
        (Product(1, (N, N_BY_TWO)), "n * (n // 2)"),
        (Product(4, (N_BY_TWO, M, N)), "4 * (n // 2) * m * n"),
    ],
)
def test_a_product_is_written_with_the_parentheses_that_it_needs(product: Product, text: str) -> None:
    assert str(product) == text
    assert product.value({"n": 23, "m": 5}) == eval(text, {"n": 23, "m": 5})


def test_the_formula_of_an_extent_is_that_alone() -> None:
    assert Formula.of(5) == Formula((Product(5),))
    assert Formula.of("n") == Formula((Product(1, (N,)),))
    formulas = [Formula.of("n"), Formula.of(5), Formula((Product(2, (N,)),)), Formula((Product(1, (N, M)),))]
    assert [each.alone for each in formulas] == ["n", "", "", ""]
    assert [each.names for each in formulas] == [{"n"}, set(), {"n"}, {"n", "m"}]


@pytest.mark.parametrize(
    ("values", "extents", "text", "doubt"),
    [
        ([7], [3], "7", None),
        ([7, 10], [2, 3], "(3 * n + 1)", None),  # as near as points can be
        ([5, 7], [10, 14], "n // 2", 11),  # as near as they can be for a quotient by two
        ([7, 5], [14, 10], "n // 2", 11),
        ([9, 25, 100], [3, 5, 10], "n * n", None),
        ([12, 28, 103], [3, 5, 10], "n * n + 3", None),
        ([3, 10, 50, 200], [3, 5, 10, 20], "n * (n // 2)", None),
        ([20, 50, 112, 302], [3, 6, 11, 20], "5 * n + n * (n // 2) + 2", None),
    ],
)
def test_the_formula_with_the_fewest_parts_is_found_and_a_point_of_doubt(
    values: list[int], extents: list[int], text: str, doubt: int | None
) -> None:
    found = fit_formula(values, [{"n": extent} for extent in extents])
    assert found is not None
    assert (str(found.formula), found.doubt) == (text, None if doubt is None else {"n": doubt})


def test_as_many_unknown_numbers_as_points_are_not_looked_for() -> None:
    assert fit_formula([9, 20], [{"n": 3}, {"n": 5}]) is None


def test_at_a_point_of_doubt_the_other_dimensions_are_as_at_the_first() -> None:
    found = fit_formula([4, 8, 20], [{"h": 8, "w": 100}, {"h": 16, "w": 120}, {"h": 40, "w": 150}])
    assert found is not None
    assert (str(found.formula), found.doubt) == ("h // 2", {"h": 9, "w": 100})


def test_dimensions_that_are_alike_at_all_points_are_told_apart() -> None:
    found = fit_formula([11, 7, 15], [{"h": extent, "w": extent} for extent in (11, 7, 15)])
    assert found is not None
    assert (str(found.formula), found.doubt) == ("h", {"h": 7, "w": 11})


@pytest.mark.parametrize("names", ["abc", "abcd"])
def test_a_product_of_up_to_four_dimensions_is_found(names: str) -> None:
    points = [dict(zip(names, extents, strict=False)) for extents in _FOUR]
    found = fit_formula([3 * math.prod(point.values()) + 5 for point in points], points)
    assert found is not None
    assert str(found.formula) == f"3 * {' * '.join(names)} + 5"
    assert found.doubt is None


def test_a_product_of_five_dimensions_is_not() -> None:
    points = [
        {**dict(zip("abcd", extents, strict=True)), "e": e} for extents, e in zip(_FOUR, (3, 5, 2, 7), strict=True)
    ]
    assert fit_formula([math.prod(point.values()) for point in points], points) is None


_FOUR = ((2, 3, 5, 7), (3, 7, 2, 5), (5, 2, 11, 3), (7, 13, 3, 2))


@pytest.mark.parametrize(
    ("least", "most", "divisor", "constant"),
    [
        (-3, 8, 8, 0),
        (0, 7, 8, 0),
        (-7, 0, 8, 0),
        (1, 7, 8, 7),
        (7, 9, 8, 7),
        (1, 6, 8, 1),
        (5, 6, 8, 5),
        (8, 9, 8, 8),
        (-2, -1, 8, -1),
        (-9, -3, 8, -3),
    ],
)
def test_the_usual_constant_is_none_or_that_of_rounding_up_or_the_smallest(
    least: int, most: int, divisor: int, constant: int
) -> None:
    assert _usual(least, most, divisor) == constant


@pytest.mark.parametrize(
    ("step", "divisor", "constants", "extents", "doubt"),
    [
        (1, 8, (0, 7), range(64), 5),
        (1, 8, (0, 7), range(16, 64), 21),
        (3, 8, (0, 7), range(64), 7),
        (1, 8, (4, 10), range(64), 1),
        (1, 8, (0, 2), range(7), 6),  # at 7 the constant 1 would differ from 0
        (1, 8, (0, 1), range(7), None),
        (1, 1, (3, 3), range(64), None),
    ],
)
def test_half_of_the_constants_differ_at_a_point_of_doubt(
    step: int, divisor: int, constants: tuple[int, int], extents: range, doubt: int | None
) -> None:
    assert _between(step, divisor, constants, extents) == doubt


@pytest.mark.parametrize(
    ("values", "columns", "solution"),
    [
        ([7, 10, 13], [[1, 2, 3]], (4, 3)),
        ([7, 10, 14], [[1, 2, 3]], None),
        ([7, 8, 9], [[1, 3, 5]], None),  # a half
        ([1, 2, 3], [[4, 4, 4]], None),
        ([8, 6, 11, 8], [[1, 1, 2, 3], [1, 2, 1, 4]], (7, 3, -2)),  # the first row has no pivot
        ([8, 6, 11, 9], [[1, 1, 2, 3], [1, 2, 1, 4]], None),
        ([2, 4, 6, 8], [[1, 2, 3, 4], [2, 4, 6, 8]], None),  # the columns are multiples
        ([-14, 10, 55, 11], [[2, 5, 11, 7], [9, 3, -8, 4]], (9, 2, -3)),
    ],
)
def test_whole_numbers_that_solve_equations_are_found(
    values: Sequence[int], columns: Sequence[Sequence[int]], solution: tuple[int, ...] | None
) -> None:
    assert _solved(values, columns) == solution
