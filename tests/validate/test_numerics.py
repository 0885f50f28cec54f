from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kintune.core.config import Metric
from kintune.core.model import Tensor
from kintune.core.stage_requests import output_name, workload_of
from kintune.core.verdict import Verdict
from kintune.runtime.inputs import Array
from kintune.validate.numerics import (
    Bound,
    Difference,
    ProgramComparison,
    compare_each_program,
    compare_outputs,
    judge_score,
    perturbed,
    within_budget,
    worse,
)

ANY = arrays(np.float32, array_shapes(min_dims=0, max_dims=3), elements=st.floats(width=32))

FINITE = arrays(np.float64, array_shapes(max_dims=2), elements=st.floats(-1e6, 1e6))


@given(ANY)
def test_what_is_equal_differs_by_nothing(output: np.ndarray) -> None:
    found = compare_outputs(["y"], [output], [output.copy()], 0.0, 0.0)
    assert (found.absolute, found.relative, found.disagreement, found.norm) == (0.0, 0.0, "", 0.0)
    assert found.bound in (Bound(0.0, "they are equal"), Bound(0.0, ""))
    is_mostly_finite = np.count_nonzero(np.isfinite(output)) * 2 >= output.size
    assert found.verdict is (Verdict.RIGHT if is_mostly_finite else Verdict.NOT_COMPARED)


@given(FINITE, st.integers(0), st.floats(-10, 10))
def test_it_agrees_exactly_when_allclose_does(expected: np.ndarray, at: int, change: float) -> None:
    output = expected.copy()
    output.flat[at % output.size] += change
    found = compare_outputs(["y"], [output], [expected], 1e-3, 1e-2)
    scale = min(1.0, float(np.sqrt(np.mean(np.square(expected)))) or 1.0)
    assert (not found.disagreement) == np.allclose(output, expected, 1e-3, 1e-2 * scale)
    assert found.absolute == np.abs(output - expected).max()


def test_the_relative_error_is_that_of_the_value() -> None:
    expected = np.full(100, 10.0)
    output = expected.copy()
    output[3] = 10.5
    assert compare_outputs(["y"], [output], [expected], 1, 1).relative == pytest.approx(0.05)


def test_values_near_zero_do_not_inflate_the_relative_error() -> None:
    expected = np.concatenate([np.full(99, 10.0), [1e-12]])
    assert compare_outputs(["y"], [expected + 1e-6], [expected], 1, 1).relative == pytest.approx(1e-7)


def test_an_output_of_many_zeros_has_the_magnitude_of_the_others() -> None:
    expected = np.array([0.0, 0.0, 0.0, 2.0, 2.0])
    assert compare_outputs(["y"], [expected + 1e-3], [expected], 1, 1).relative == pytest.approx(5e-4)
    assert compare_outputs(["y"], [np.full(3, 0.25)], [np.zeros(3)], 1, 1).relative == 0.25
    assert compare_outputs(["y"], [np.full(3, 0.375)], [np.full(3, 0.25)], 1, 1).relative == 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_is_infinitely_wrong(bad: float) -> None:
    good, spoilt = np.ones(4, np.float32), np.array([1, bad, 1, 1], np.float32)
    for output, expected in ((good, spoilt), (spoilt, good)):
        found = compare_outputs(["y"], [output], [expected], 1e30, 1e30)
        assert found.absolute == found.relative == math.inf
        assert found.disagreement.startswith("output 'y': 1 of 4 values differ")


def test_opposite_infinities_differ() -> None:
    assert compare_outputs(["y"], [np.array([math.inf])], [np.array([-math.inf])], 1, 1).absolute == math.inf


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_must_be_equal(dtype: str) -> None:
    expected = np.array([1, 0, 1], dtype)
    found = compare_outputs(["mask"], [np.array([1, 1, 1], dtype)], [expected], 100.0, 100.0)
    assert found.disagreement == "output 'mask': 1 of 3 values differ, most at [1]: 1 instead of 0"
    equal = compare_outputs(["mask"], [expected], [expected], 100.0, 100.0)
    assert (equal.verdict, equal.bound) == (Verdict.RIGHT, Bound(0.0, ""))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_large_integers_must_be_equal_too(dtype: str) -> None:
    """A 64-bit float has 53 bits of a number."""
    expected = np.array([2**60, 7, 2**60 + 1], dtype)
    output = expected + np.array([1, 0, 0], dtype)
    found = compare_outputs(["ids"], [output], [expected], 1e-3, 1e-3)
    assert found.disagreement == f"output 'ids': 1 of 3 values differ, most at [0]: {2**60 + 1} instead of {2**60}"
    assert disagreement_of(output, expected, expected, expected)
    assert disagreement_of(output, expected, output) == ""  # noise moves it as well


def test_strings_must_be_equal() -> None:
    words = np.array([["a", "b"], ["c", "d"]])
    assert compare_outputs(["y"], [words], [words.copy()], 1e-3, 1e-3) == Difference(
        0.0, 0.0, "", compared=frozenset({"y"})
    )
    found = compare_outputs(["y"], [np.array([["a", "b"], ["x", "d"]])], [words], 1e-3, 1e-3)
    assert found.disagreement == "output 'y': 1 of 4 strings differ, first at [1, 0]: 'x' instead of 'c'"
    found = compare_outputs(["y"], [np.zeros((2, 2))], [words], 1e-3, 1e-3)
    assert found.disagreement == "output 'y' is float64 instead of <U1"


def test_the_line_names_the_output_and_the_worst_value() -> None:
    expected = np.zeros((2, 3))
    output = np.array([[0, 0.5, 0], [0, 0, 2.0]])
    found = compare_outputs(["a", "b"], [expected, output], [expected, expected], 1e-3, 1e-2)
    assert found.disagreement == (
        "output 'b': 2 of 6 values differ by more than atol 0.01 + rtol 0.001, most at [1, 2]: 2 instead of 0"
    )


def test_other_shapes_and_numbers_of_outputs_are_named() -> None:
    one = np.zeros((2, 3))
    assert compare_outputs(["a"], [one], [one.T], 1, 1).disagreement == "output 'a' has shape (2, 3) instead of (3, 2)"
    assert compare_outputs(["a"], [one], [one, one], 1, 1).disagreement == "1 outputs instead of 2"
    assert compare_outputs(["a"], [one[:0]], [one[:0]], 1, 1) == Difference(0.0, 0.0, "", compared=frozenset({"a"}))


def test_other_element_types_are_named() -> None:
    one, wide = np.ones(3, np.float32), np.ones(3)
    found = compare_outputs(["a"], [one], [wide], 1, 1)
    assert found.disagreement == "output 'a' is float32 instead of float64"
    assert within_budget(found, 0.5) == found
    assert compare_outputs(["a"], [one[:0]], [wide[:0]], 1, 1).disagreement == found.disagreement


F32 = npt.NDArray[np.float32]

RNG = np.random.default_rng(5)


def disagreement_of(
    output: npt.NDArray[np.generic], reference: npt.NDArray[np.generic], *samples: npt.NDArray[np.generic]
) -> str:
    return compare_outputs(["y"], [output], [reference], 1e-3, 1e-3, [[sample] for sample in samples]).disagreement


def logistic(x: npt.NDArray[np.floating], steps: int) -> npt.NDArray[np.floating]:
    for _ in range(steps):
        x = x.dtype.type(3.9) * x * (x.dtype.type(1) - x)
    return x


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_move_by_a_few_units_in_the_last_place(dtype: str) -> None:
    array = RNG.standard_normal((50, 40)).astype(dtype)
    other = perturbed(array, (1, 2))
    assert other.dtype == array.dtype
    change = np.abs(other.astype(np.float64) - array) / np.abs(array.astype(np.float64))
    assert 0 < change.max() < 8 * np.finfo(dtype).eps
    assert np.array_equal(other, perturbed(array, (1, 2)))
    assert not np.array_equal(other, perturbed(array, (1, 3)))


def test_bfloat16_moves_and_integers_stay() -> None:
    import ml_dtypes  # comes with onnx

    array = RNG.standard_normal(100).astype(ml_dtypes.bfloat16)
    assert not np.array_equal(perturbed(array, (1,)), array)
    assert np.array_equal(perturbed(np.arange(9), (1,)), np.arange(9))


def test_a_chaotic_network_may_differ_as_much_as_from_itself() -> None:
    x: F32 = RNG.random(5000, np.float32)
    reference = logistic(x, 14)
    samples = [logistic(perturbed(x, (seed,)), 14) for seed in range(3)]
    reordered = logistic(perturbed(x, (9,)), 14)
    assert disagreement_of(reordered, reference)
    assert disagreement_of(reordered, reference, *samples) == ""
    wrong = reordered.copy()
    wrong[-40:] = 0  # a tail that was not written
    assert disagreement_of(wrong, reference, *samples)
    assert disagreement_of(np.roll(reordered, 1), reference, *samples)


def test_nothing_passes_where_rounding_moves_everything() -> None:
    x: F32 = RNG.random(5000, np.float32)
    reference = logistic(x, 60)
    samples = [logistic(perturbed(x, (seed,)), 60) for seed in range(3)]
    chaotic = logistic(perturbed(x, (9,)), 60)
    found = compare_outputs(["y"], [chaotic], [reference], 1e-3, 1e-3, [[sample] for sample in samples])
    assert found.verdict is Verdict.NOT_COMPARED
    assert "nothing can be said" in found.doubtful
    assert found.not_compared["y"].startswith("output 'y': rounding alone moves its values by ")
    assert disagreement_of(10 * chaotic, reference, *samples)  # it is farther away than rounding moves it


def test_whether_anything_can_be_said_depends_on_four_times_the_noise() -> None:
    draw = np.random.default_rng(3).standard_normal
    reference = draw(2000)
    for noise, verdict in ((0.05, Verdict.NOT_COMPARED), (0.02, Verdict.WRONG)):
        samples = [[reference + noise * draw(2000)] for _ in range(3)]
        for off, expected in ((3.5 * noise, verdict), (8 * noise, Verdict.WRONG)):
            found = compare_outputs(["y"], [reference + max(off, 0.15) * draw(2000)], [reference], 1e-3, 1e-3, samples)
            assert found.verdict is expected
            assert found.noise == pytest.approx(noise, rel=0.1)


def test_nothing_is_said_of_an_output_whose_shape_rounding_changes() -> None:
    """The length of speech depends on durations that are rounded."""
    short, long, other = (np.ones(length, np.float32) for length in (200, 300, 400))
    found = compare_outputs(["y"], [long], [short], 1e-3, 1e-3, [[short], [other]])
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.not_compared == {"y": "output 'y': rounding alone changes its shape"}
    assert found.doubtful.startswith("output 'y' has shape (300,) instead of (200,), where rounding alone")
    assert compare_outputs(["y"], [long], [short], 1e-3, 1e-3, [[short], [short]]).verdict is Verdict.WRONG
    assert compare_outputs(["y"], [short], [short], 1e-3, 1e-3, [[other], [other]]).verdict is Verdict.RIGHT
    assert compare_outputs(["y"], [2 * short], [short], 1e-3, 1e-3, [[other], [other]]).verdict is Verdict.WRONG


def test_an_output_that_is_mostly_no_number_is_not_compared() -> None:
    spoilt = np.array([1, math.nan, math.inf, math.nan], np.float32)
    found = compare_outputs(["y", "z"], [spoilt, spoilt[:1]], [spoilt.copy(), spoilt[:1]], 1e-3, 1e-3)
    assert found.verdict is Verdict.RIGHT
    assert found.compared == {"z"}
    assert found.not_compared == {"y": "output 'y': 75 % of its values are infinite or not numbers"}
    nothing = compare_outputs(["y"], [spoilt], [spoilt.copy()], 1e-3, 1e-3)
    assert nothing.verdict is Verdict.NOT_COMPARED
    assert worse(nothing, found).not_compared.keys() == {"y"}
    seen = compare_outputs(["y"], [np.ones(4)], [np.ones(4)], 1e-3, 1e-3)
    assert worse(nothing, seen).not_compared == {}  # compared on another set of inputs
    assert compare_outputs(["y"], [np.ones(4, np.float32)], [spoilt], 1e-3, 1e-3).verdict is Verdict.WRONG


@pytest.mark.parametrize(("numbers", "verdict"), [(2, Verdict.NOT_COMPARED), (3, Verdict.RIGHT)])
def test_half_of_the_values_must_be_numbers(numbers: int, verdict: Verdict) -> None:
    values = np.array([1.0] * numbers + [math.nan] * (5 - numbers))
    assert compare_outputs(["y"], [values], [values], 1e-3, 1e-3).verdict is verdict
    assert within_budget(Difference(0.0, 0.0, "it differs"), 0.0).disagreement == ""


def test_small_outputs_have_a_small_tolerance() -> None:
    small = 1e-5 * RNG.standard_normal(100)
    assert compare_outputs(["y"], [1.5 * small], [small], 1e-3, 1e-3).verdict is Verdict.WRONG
    assert compare_outputs(["y"], [(1 + 1e-4) * small], [small], 1e-3, 1e-3).verdict is Verdict.RIGHT
    moving = [[small * factor] for factor in (0.5, 2.0, 1.7)]  # rounding alone
    found = compare_outputs(["y"], [1.5 * small], [small], 1e-3, 1e-3, moving)
    assert found.verdict is Verdict.NOT_COMPARED
    assert not found.doubtful
    assert "below the absolute tolerance" in found.not_compared["y"]
    strict = compare_outputs(["y"], [1.5 * small], [small], 1e-3, 1e-9, moving)  # most errors are above this one
    assert strict.verdict is Verdict.NOT_COMPARED
    assert strict.doubtful


def test_the_bound_that_decided_is_told() -> None:
    one, other = np.full(3, 10.0), np.full(3, 10.0)
    other[1] += 0.005
    found = compare_outputs(["a", "b"], [one, other], [one, one], 1e-3, 1e-3)
    assert found.bound.text == (
        "output 'b' at [1] is off by 0.005, and 0.011 is allowed (0.001 absolute + 0.001 relative)"
    )
    assert compare_outputs(["a"], [one], [one], 1e-3, 1e-3).bound.text == "they are equal"
    nearly = compare_outputs(["a"], [np.array([0.0, 1.0, 2.001])], [np.arange(3.0)], 1e-3, 0.0)
    assert nearly.bound.text.startswith("output 'a' at [2] is off by 0.001")  # nothing is allowed at 0, or needed
    assert worse(nearly._replace(noise=0.2), nearly._replace(noise=0.1)).noise == 0.2


def quantised(x: F32, seed: int | None) -> F32:
    """Values in steps of 1/16; with a seed, moved before they are rounded so that some flip."""
    moved_x = (
        x if seed is None else x + np.float32(1e-3) * np.random.default_rng(seed).standard_normal(x.shape, np.float32)
    )
    return np.round(moved_x * 16).astype(np.float32) / 16


def test_quantised_values_may_flip_as_often_as_they_do_anyway() -> None:
    x = RNG.standard_normal((1, 8, 16, 16)).astype(np.float32)
    reference = quantised(x, None)
    samples = [quantised(x, seed) for seed in range(1, 4)]
    assert disagreement_of(quantised(x, 7), reference, *samples) == ""
    assert disagreement_of(quantised(x + np.float32(0.02), None), reference, *samples)
    assert disagreement_of(np.roll(reference, 1, axis=1), reference, *samples)
    two_steps = reference.copy()
    two_steps[0, 0, 0, 0] += 0.5
    assert disagreement_of(two_steps, reference, *samples)


def test_small_values_are_not_hidden_by_the_noise_of_large_ones() -> None:
    boxes = 300 * RNG.standard_normal((1, 4, 100))
    scores = RNG.random((1, 1, 100))
    reference = np.concatenate([boxes, scores], 1).astype(np.float32)
    noise = np.concatenate([np.ones((1, 4, 100)), np.full((1, 1, 100), 1e-4)], 1)
    samples = [
        (reference + noise * np.random.default_rng(seed).standard_normal(noise.shape)).astype(np.float32)
        for seed in range(3)
    ]
    near = (reference + noise * RNG.standard_normal(noise.shape)).astype(np.float32)
    assert disagreement_of(near, reference, *samples) == ""
    near[0, 4, 50] += 0.5
    assert disagreement_of(near, reference, *samples)


def test_values_are_lost_no_more_often_than_noise_loses_them() -> None:
    """The root of a variance that is nearly 0 is a number in some runs alone."""
    reference = np.random.default_rng(5).standard_normal((1, 1000)).astype(np.float32)
    samples = [reference.copy() for _ in range(3)]
    for number, sample in enumerate(samples):
        sample[0, number] = np.nan
    output = reference.copy()
    output[0, 7] = np.nan
    assert disagreement_of(output, reference, *samples) == ""
    output[0, 100:] = np.nan
    assert "values differ" in disagreement_of(output, reference, *samples)


def test_choices_may_differ_where_the_reference_flips() -> None:
    logits = RNG.standard_normal((400, 50))

    def chosen(seed: int) -> npt.NDArray[np.int64]:
        return np.argmax(logits + 0.01 * np.random.default_rng(seed).standard_normal(logits.shape), axis=1)

    reference, samples = np.argmax(logits, axis=1), [chosen(seed) for seed in range(1, 4)]
    assert disagreement_of(chosen(8), reference, *samples) == ""
    assert disagreement_of(reference + 1, reference, *samples)
    assert disagreement_of(np.where(np.arange(400) < 60, 0, reference), reference, *samples)
    steady = [reference] * 3
    once = reference.copy()
    once[3] += 1
    assert disagreement_of(once, reference, *steady)


def test_bytes_may_be_a_step_apart_here_and_there() -> None:
    reference = RNG.integers(0, 256, (1, 1000)).astype(np.uint8)
    one = reference.copy()
    one[0, :5] ^= 1
    assert disagreement_of(one, reference, reference) == ""
    one[0, :100] ^= 1
    assert disagreement_of(one, reference, reference)
    far = reference.copy()
    far[0, 7] ^= 4
    assert disagreement_of(far, reference, reference)


def compare(dtype: str, *pairs: tuple[Array, Array]) -> ProgramComparison:
    """What comes of one workload with these outputs."""
    tensors = [Tensor(output_name("w", n), pairs[n % len(pairs)][0].shape, dtype) for n in range(2 * len(pairs))]
    return compare_each_program(
        tensors, [*(tuned for tuned, _ in pairs), *(untuned for _, untuned in pairs)], 1e-3, 1e-3
    )


def test_names_say_the_workload() -> None:
    assert workload_of(output_name("abc", 12)) == "abc"


def test_each_output_of_each_workload_is_compared_with_its_own() -> None:
    one, other = np.ones(3, np.float32), np.zeros(3, np.float32)
    tensors = [Tensor(output_name(w, n), (3,), "float32") for w in ("a", "b") for n in range(2)]
    found = compare_each_program(tensors, [one, one, one, other], 1e-3, 1e-3)
    assert found.compared == ("a", "b")
    assert set(found.wrong) == {"b"}
    assert compare("float32", (one, one), (other, other)).wrong == {}
    assert "wrong numbers" in compare("float32", (one, one), (one, other)).wrong["w"]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-3), ("float16", 2e-2), ("bfloat16", 2e-2)])
def test_short_floats_may_differ_more(dtype: str, bound: float) -> None:
    stored = np.float16 if dtype == "float16" else np.float32
    expected = np.linspace(1, 2, 50).astype(stored)
    near, far = expected * stored(1 + 1.5 * bound), expected * stored(1 + 4 * bound)
    assert compare(dtype, (near.astype(stored), expected)).wrong == {}
    assert set(compare(dtype, (far.astype(stored), expected)).wrong) == {"w"}


def test_bytes_of_a_program_may_be_a_step_apart_here_and_there() -> None:
    expected = np.arange(-100, 100, dtype=np.int8).repeat(2)
    near, many, far = expected.copy(), expected + np.int8(1), expected.copy()
    near[[5, 300]] += 1
    far[5] += 2
    assert compare("int8", (near, expected)).wrong == {}
    assert set(compare("int8", (many, expected)).wrong) == set(compare("int8", (far, expected)).wrong) == {"w"}
    near[[7, 9]] += 1
    assert compare("int8", (near, expected)).wrong == {}  # 4 of 400
    near[11] += 1
    assert set(compare("int8", (near, expected)).wrong) == {"w"}
    assert compare("int32", (expected.astype(np.int32), near.astype(np.int32))).wrong != {}


def test_the_norm_of_an_error_is_a_share_of_that_of_the_output() -> None:
    reference = [np.array([3.0, 4.0], np.float32), np.array([100.0], np.float32)]
    outputs = [np.array([3.0, 4.5], np.float32), np.array([101.0], np.float32)]
    found = compare_outputs(["a", "b"], outputs, reference, 1e-3, 1e-3)
    assert found.norm == pytest.approx(0.1)
    assert within_budget(found, 0.11).disagreement == ""
    assert "off by 0.1 of their norm, and at most 0.05 is allowed" in within_budget(found, 0.05).disagreement


@pytest.mark.parametrize(
    ("output", "expected", "norm"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1e-9, 0.0], [0.0, 0.0], np.inf),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
    ],
)
def test_the_norm_of_an_error_has_an_end_only_where_values_have(
    output: list[float], expected: list[float], norm: float
) -> None:
    found = compare_outputs(["y"], [np.array(output)], [np.array(expected)], 1e-3, 1e-3)
    assert found.norm == norm


def test_an_output_that_the_reference_draws_anew_is_not_compared_where_it_differs() -> None:
    one, other = np.ones(3), np.full(3, 2.0)
    found = compare_outputs(
        ["y", "z"], [one, one], [other, one], 1e-3, 1e-3, unsteady={"y": "two runs differ", "z": "so"}
    )
    assert found.disagreement == ""
    assert found.compared == {"z"}
    assert found.not_compared == {"y": "output 'y': two runs differ"}
    assert compare_outputs(["y"], [one], [other], 1e-3, 1e-3, unsteady={"z": "so"}).verdict is Verdict.WRONG


def test_a_score_judges_what_could_not_be_compared() -> None:
    spoilt = np.full(4, np.nan)
    found = compare_outputs(["y"], [spoilt], [spoilt], 1e-3, 1e-3)
    metric = Metric("metrics", "accuracy", "", 0.1, reference=0.9)
    for score, verdict in ((0.85, Verdict.RIGHT), (0.7, Verdict.WRONG)):
        judged = judge_score(found, metric, score)
        assert (judged.verdict, judged.compared, judged.not_compared) == (verdict, {"y"}, {})


def test_a_sigmoid_may_be_off_by_what_onnxruntime_s_is() -> None:
    exact, theirs = np.array([1e-3, 2e-8]), np.array([1e-3, 0.0])
    tolerances = 1e-3, 1e-7
    assert compare_outputs(["y"], [theirs], [exact], *tolerances).verdict is Verdict.WRONG
    assert compare_outputs(["y"], [theirs], [exact], *tolerances, sigmoids={"y"}).verdict is Verdict.RIGHT
    exact[0] = theirs[0] = 1e-7
    found = compare_outputs(["y"], [theirs], [exact], *tolerances, sigmoids={"y"})
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.not_compared["y"].startswith("output 'y': its values, 1e-07 at most, are below the error of")
    assert compare_outputs(["y"], [exact], [exact], *tolerances, sigmoids={"y"}).verdict is Verdict.RIGHT
    assert compare_outputs(["y"], [exact + 1e-6], [exact], *tolerances, sigmoids={"y"}).verdict is Verdict.WRONG
