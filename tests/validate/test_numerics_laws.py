"""The comparison of outputs is what its documentation says: against a plain look at each value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kintune.core.verdict import Verdict
from kintune.validate.extreme_check import settled, typical
from kintune.validate.numerics import (
    MAX_NOISE_SHARE,
    NOISE_FACTOR,
    SIGMOID_ERROR,
    compare_outputs,
    noise_allowance,
    perturbed,
)

Values = np.ndarray[Any, np.dtype[Any]]

SHAPES = st.sampled_from(((1,), (4,), (2, 3), (3, 1, 4), (1, 1), (2, 2, 3)))
STRANGE = (math.nan, math.inf, -math.inf)


def places(shape: tuple[int, ...], most: int) -> st.SearchStrategy[list[int]]:
    """Some places of an array, as numbers."""
    return st.lists(st.integers(0, math.prod(shape) - 1), max_size=most)


@st.composite
def near(draw: Any, expected: Values, steps: Sequence[float]) -> Values:
    """Values that differ from the expected ones by one of these steps in some places, and are no numbers in few."""
    found = expected.copy()
    for at in draw(places(expected.shape, 6)):
        found.flat[at] += draw(st.sampled_from(steps))
    for at in draw(places(expected.shape, 1)) if draw(st.integers(0, 3)) == 0 else ():
        found.flat[at] = draw(st.sampled_from(STRANGE))
    return found


@st.composite
def floats(draw: Any, strange: int = 3) -> Values:
    """Values in a grid, of which at most so many are no numbers."""
    found: Values = draw(arrays(np.float64, draw(SHAPES), elements=st.integers(-24, 24).map(lambda n: n / 8)))
    for at in draw(places(found.shape, strange)):
        found.flat[at] = draw(st.sampled_from(STRANGE))
    return found


def distance(one: float, other: float) -> float:
    """How far two values are apart."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) if math.isfinite(one) and math.isfinite(other) else math.inf


def distances(one: Values, other: Values) -> Values:
    return np.array([distance(a, b) for a, b in zip(one.flat, other.flat, strict=True)]).reshape(one.shape)


def root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(each * each for each in values) / len(values)) if values else 0.0


STEPS = (0.0, 1e-3, -0.01, 0.011, 0.05, 1.0, -7.0)


@given(st.data(), st.sampled_from((0.0, 1e-3, 0.02)), st.sampled_from((0.0, 1e-2, 0.5)))
def test_differences_are_those_of_the_values(data: st.DataObject, rtol: float, atol: float) -> None:
    expected = data.draw(floats())
    output = data.draw(near(expected, STEPS))
    found = compare_outputs(["y"], [output], [expected], rtol, atol)
    errors = distances(output, expected)
    finite = [float(each) for each in expected.flat if math.isfinite(each)]
    magnitudes = [abs(each) if math.isfinite(each) else 0.0 for each in expected.flat]
    present = [each for each in magnitudes if each > 0]
    usual = float(np.median(present)) if present else 1.0
    scaled = atol * min(1.0, root_mean_square(finite) or 1.0)
    allowed = [scaled + rtol * each for each in magnitudes]
    shares = [each / most if most else math.inf for each, most in zip(errors.flat, allowed, strict=True) if each]
    over = [each > most for each, most in zip(errors.flat, allowed, strict=True)]
    norm = math.inf if math.inf in errors else math.sqrt(sum(each * each for each in errors.flat))
    of_values = math.sqrt(sum(each * each for each in magnitudes))
    if any(over):
        assert found.verdict is Verdict.WRONG
        assert found.disagreement.startswith(f"output 'y': {sum(over)} of {expected.size} values differ by more than")
        assert f"atol {scaled:.3g} + rtol {rtol:g}, most at [" in found.disagreement
        at = tuple(map(int, found.disagreement.split("[")[1].split("]")[0].split(", ")))
        assert errors[at] == max(error for error, is_wrong in zip(errors.flat, over, strict=True) if is_wrong)
    elif 2 * len(finite) < expected.size:
        assert found.verdict is Verdict.NOT_COMPARED
        return
    else:
        assert found.verdict is Verdict.RIGHT
        assert found.bound.share == pytest.approx(max(shares, default=0.0))
    assert found.compared == {"y"}
    assert found.absolute == max(errors.flat)
    each_relative = [error / max(most, usual) for error, most in zip(errors.flat, magnitudes, strict=True)]
    assert found.relative == pytest.approx(max(each_relative))
    assert found.norm == pytest.approx(norm / of_values if of_values else (math.inf if norm else 0.0))
    assert found.noise is None


def too_far(errors: Values, moves: Sequence[Values], plain: Values) -> Values:
    """Where errors exceed what is plainly allowed and four times the moves around, on each line through the value."""
    farthest = np.max(moves, axis=0)
    found = np.zeros(errors.shape, bool)
    for at in np.ndindex(errors.shape):
        lines = [
            farthest[(*at[:axis], slice(None), *at[axis + 1 :])].max()
            for axis in range(errors.ndim)
            if errors.shape[axis] > 1
        ]
        around = min(lines, default=farthest.max())
        found[at] = errors[at] > plain[at] + NOISE_FACTOR * around
    return found


@settings(max_examples=200)
@given(st.data())
def test_noise_allows_what_it_says(data: st.DataObject) -> None:
    expected = data.draw(floats(strange=1))
    steps = data.draw(st.sampled_from(((0.0, 0.01), (0.1, -0.1, 1e-3), STEPS)))
    output = data.draw(near(expected, data.draw(st.sampled_from((steps, STEPS)))))
    samples = [data.draw(near(expected, steps)) for _ in range(data.draw(st.integers(1, 3)))]
    plain = np.full(expected.shape, 0.005)
    found = noise_allowance(output, expected, samples, plain)

    errors, moves = distances(output, expected), [distances(each, expected) for each in samples]
    wrong = too_far(errors, moves, plain)
    flips = [too_far(move, [m for m in moves if m is not move], plain).sum() for move in moves if len(moves) > 1]
    if wrong.any() and wrong.sum() <= NOISE_FACTOR * max(flips, default=0):
        wrong = errors > plain + NOISE_FACTOR * max(move.max() for move in moves)
    lost = np.isinf(errors)
    if lost.sum() > NOISE_FACTOR * max(np.isinf(move).sum() for move in moves):
        wrong = wrong | lost
    np.testing.assert_array_equal(found.wrong, wrong)

    numbers = [float(each) for each in expected.flat if math.isfinite(each)]
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    scale = root_mean_square([each - mean for each in numbers]) or root_mean_square(numbers)
    noise = max(root_mean_square([float(m) if math.isfinite(m) else 0.0 for m in move.flat]) for move in moves)
    far = root_mean_square([max(0.0, float(e) - 0.005) if math.isfinite(e) else 0.0 for e in errors.flat])
    assert found.noise == pytest.approx(noise / scale if scale > 1e-9 else 0.0)
    if scale == 0 or scale > 1e-9:
        for said, least in (
            (found.beyond, min(NOISE_FACTOR * noise, MAX_NOISE_SHARE * scale)),
            (found.farther, NOISE_FACTOR * noise),
        ):
            assert said == (far > least) or far == pytest.approx(least)


def test_what_is_just_as_far_as_noise_allows_is_not_farther() -> None:
    expected = np.array([-1.0, 1.0])  # whose deviation is 1
    found = noise_allowance(expected + NOISE_FACTOR, expected, [expected + 1.0], np.zeros(2))
    assert found.beyond
    assert not found.farther


@given(st.data(), st.sampled_from(("uint8", "int8", "int64", "bool")))
def test_noise_allows_integers_to_flip(data: st.DataObject, dtype: str) -> None:
    is_byte = dtype in ("uint8", "int8")
    size = data.draw(st.sampled_from((1, 10, 99, 100, 250)))
    places = st.lists(st.integers(0, size - 1), max_size=6, unique=True)
    expected = (np.arange(size) % 2 + (10 if dtype != "bool" else 0)).astype(dtype)

    def flipped(most: int) -> Values:
        changed = expected.copy()
        for at in data.draw(places):
            changed[at] = not changed[at] if dtype == "bool" else changed[at] + data.draw(st.integers(1, most))
        return changed

    output, samples = flipped(6), [flipped(2) for _ in range(data.draw(st.integers(1, 2)))]
    found = noise_allowance(output, expected, samples, np.zeros(size))
    errors, moves = distances(output * 1.0, expected * 1.0), [distances(s * 1.0, expected * 1.0) for s in samples]
    most = max(np.count_nonzero(move) for move in moves)
    others = sum(1 for at in range(size) if errors[at] and not any(move[at] for move in moves))
    assert found.noise == most / size
    if is_byte and errors.max() > max(1.0, NOISE_FACTOR * max(move.max() for move in moves)):
        assert found.beyond
        assert found.wrong.sum() == (errors > max(1.0, NOISE_FACTOR * max(move.max() for move in moves))).sum()
        return
    allowed = max(NOISE_FACTOR * most, 0.01 * size) if is_byte else NOISE_FACTOR * most
    assert found.beyond == (others > allowed or np.count_nonzero(errors) > max(MAX_NOISE_SHARE * size, 1))
    assert found.wrong.sum() == (others if found.beyond else 0)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (1, 2, 2), (4,), (1,)])
def test_a_value_is_judged_by_the_calmest_line_through_it(shape: tuple[int, ...]) -> None:
    moves = np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    for share in (0.99, 1.01):
        errors = np.zeros(shape)
        for at in np.ndindex(shape):
            lines = [
                moves[(*at[:axis], slice(None), *at[axis + 1 :])].max() for axis in range(moves.ndim) if shape[axis] > 1
            ]
            errors[at] = share * NOISE_FACTOR * min(lines, default=moves.max())
        found = noise_allowance(errors, np.zeros(shape), [moves], np.zeros(shape))
        assert found.wrong.all() == found.wrong.any() == (share > 1)


@pytest.mark.parametrize(("lost", "is_wrong"), [(4, False), (5, True)])
def test_four_times_as_many_values_may_be_lost(lost: int, is_wrong: bool) -> None:
    expected = np.linspace(1, 2, 100)
    output, sample = expected.copy(), expected.copy()
    output[:lost], sample[50] = np.nan, np.nan
    assert noise_allowance(output, expected, [sample], np.full(100, 0.1)).wrong.any() == is_wrong


UNITS = {"float16": 2 * 2.0**-10, "bfloat16": 2 * 2.0**-7, "float32": 4 * 2.0**-23, "float64": 4 * 2.0**-52}


@pytest.mark.parametrize("dtype", UNITS)
def test_values_move_by_up_to_so_many_units_both_ways(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = np.full((4, 500), 1.5).astype(kind)
    moved = (perturbed(array, (3,)).astype(np.float64) / 1.5 - 1) / UNITS[dtype]
    assert moved.max() <= 1.0 >= -moved.min()
    assert moved.max() > 0.6
    assert moved.min() < -0.6
    largest = float(ml_dtypes.finfo(kind).max)
    strange = np.array([np.inf, -np.inf, np.nan, 0.0, largest] * 10).astype(kind)
    found, expected = (each.astype(np.float64) for each in (perturbed(strange, (3,)), strange))
    np.testing.assert_array_equal(found[expected != largest], expected[expected != largest])
    np.testing.assert_allclose(found, expected, rtol=2 * UNITS[dtype])
    assert perturbed(array[:0], (3,)).size == 0


@given(st.floats(0, 1e-5), st.floats(0, 1e-5))
@example(0.0, SIGMOID_ERROR)
def test_sigmoids_may_be_off_by_their_error(exact: float, off: float) -> None:
    """Their values are compared with a tolerance of 1e-9 here."""
    output, expected = np.array([exact + off, 0.5]), np.array([exact, 0.5])
    found = compare_outputs(["y"], [output], [expected], 0.0, 1e-9, sigmoids={"y"})
    assert (found.verdict is Verdict.RIGHT) == (abs(output[0] - exact) <= SIGMOID_ERROR)


def check_settled(output: Values, expected: Values, reach: int, hides: bool) -> None:
    """Compare what is left out with a look at each place."""
    shape, dtype = expected.shape, expected.dtype

    def is_extreme(value: float) -> bool:
        return not abs(value) <= (2.0**14 if dtype == np.float16 else 1e15)

    found = settled(output, expected, reach, hides_nan=hides)
    last = len(shape) > 2 and len(set(shape[2:])) > 1 and len(set(shape[1:-1])) == 1
    channels = len(shape) - 1 if last else 1
    for at in np.ndindex(shape):
        theirs, ours = float(expected[at]), float(output[at])
        left_out = (is_extreme(theirs) and is_extreme(ours)) or (hides and math.isnan(ours))
        if reach and len(shape) > 2 and (is_extreme(ours) or math.isfinite(theirs)):
            around = [
                range(extent) if axis == channels else range(max(0, i - reach), i + reach + 1) if axis else [i]
                for axis, (i, extent) in enumerate(zip(at, shape, strict=True))
            ]
            places = [p for p in itertools.product(*around) if all(i < e for i, e in zip(p, shape, strict=True))]
            left_out |= any(is_extreme(float(expected[place])) for place in places)
        np.testing.assert_equal(float(found[at]), theirs if left_out else ours)


@given(st.data(), st.integers(0, 2), st.booleans())
def test_what_is_left_out_around_extremes(data: st.DataObject, reach: int, hides: bool) -> None:
    shape = data.draw(st.sampled_from(((3, 4), (2, 2, 5), (2, 2, 3, 3), (1, 3, 3, 2), (2, 5, 5, 5))))
    dtype = data.draw(st.sampled_from((np.float32, np.float16)))
    values = st.sampled_from((0.0, 1.0, 2.0**13, 2.0**15, -np.inf, np.nan, 1e30))

    def drawn() -> Values:
        found = np.ones(shape, dtype)
        for _ in range(data.draw(st.integers(0, 4))):
            with np.errstate(over="ignore"):
                found[tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)] = data.draw(values)
        return found

    check_settled(drawn(), drawn(), reach, hides)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("value", [2.0**15, np.nan, -np.inf])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3),
        (2, 3, 4),
        (2, 3, 3, 2),
        (1, 4, 4, 4),
        (1, 2, 4, 4),
        (1, 4, 2, 4),
        (1, 4, 4, 4, 2),
        (1, 2, 3, 4),
        (1, 5, 5, 2),
    ],
)
def test_what_is_left_out_around_one_extreme(shape: tuple[int, ...], value: float, dtype: Any) -> None:
    expected = np.ones(shape, dtype)
    expected[(0,) + (1,) * (len(shape) - 1)] = value
    for wrong in (value, 7.0, np.inf):
        check_settled(np.full(shape, wrong, dtype), expected, 1, False)
    check_settled(np.full(shape, np.nan, dtype), expected, 0, True)


@given(st.lists(st.sampled_from((0.0, -0.5, 0.7, 3.0, -9.0, math.inf, math.nan)), min_size=1, max_size=6))
def test_typical_values_are_the_middle_of_those_that_are_numbers(values: list[float]) -> None:
    present = [abs(each) for each in values if math.isfinite(each) and each]
    assert typical(np.array(values)) == max(1.0, float(np.median(present)) if present else 1.0)
    assert typical(np.array([7, 9])) == 1.0
