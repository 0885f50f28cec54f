"""Tolerance that follows from noise: what moves as the reference does is right, what does not is wrong."""

import numpy as np
import numpy.typing as npt
import pytest

from kintune.validate.noise import moved
from kintune.validate.numerics import compare_outputs

F32 = npt.NDArray[np.float32]
RNG = np.random.default_rng(5)


def verdict(
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
    other = moved(array, (1, 2))
    assert other.dtype == array.dtype
    change = np.abs(other.astype(np.float64) - array) / np.abs(array.astype(np.float64))
    assert 0 < change.max() < 8 * np.finfo(dtype).eps
    assert np.array_equal(other, moved(array, (1, 2)))
    assert not np.array_equal(other, moved(array, (1, 3)))


def test_bfloat16_moves_and_integers_stay() -> None:
    import ml_dtypes  # comes with onnx

    array = RNG.standard_normal(100).astype(ml_dtypes.bfloat16)
    assert not np.array_equal(moved(array, (1,)), array)
    assert np.array_equal(moved(np.arange(9), (1,)), np.arange(9))


def test_a_chaotic_network_may_differ_as_much_as_from_itself() -> None:
    x: F32 = RNG.random(5000, np.float32)
    reference = logistic(x, 14)
    samples = [logistic(moved(x, (seed,)), 14) for seed in range(3)]
    reordered = logistic(moved(x, (9,)), 14)
    assert verdict(reordered, reference)
    assert verdict(reordered, reference, *samples) == ""
    wrong = reordered.copy()
    wrong[-40:] = 0  # a tail that was not written
    assert verdict(wrong, reference, *samples)
    assert verdict(np.roll(reordered, 1), reference, *samples)


def test_nothing_passes_where_rounding_moves_everything() -> None:
    x: F32 = RNG.random(5000, np.float32)
    reference = logistic(x, 60)
    samples = [logistic(moved(x, (seed,)), 60) for seed in range(3)]
    assert "nothing can be said" in verdict(logistic(moved(x, (9,)), 60), reference, *samples)


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
    assert verdict(quantised(x, 7), reference, *samples) == ""
    assert verdict(quantised(x + np.float32(0.02), None), reference, *samples)
    assert verdict(np.roll(reference, 1, axis=1), reference, *samples)
    two_steps = reference.copy()
    two_steps[0, 0, 0, 0] += 0.5
    assert verdict(two_steps, reference, *samples)


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
    assert verdict(near, reference, *samples) == ""
    near[0, 4, 50] += 0.5
    assert verdict(near, reference, *samples)


def test_choices_may_differ_where_the_reference_flips() -> None:
    logits = RNG.standard_normal((400, 50))

    def chosen(seed: int) -> npt.NDArray[np.int64]:
        return np.argmax(logits + 0.01 * np.random.default_rng(seed).standard_normal(logits.shape), axis=1)

    reference, samples = np.argmax(logits, axis=1), [chosen(seed) for seed in range(1, 4)]
    assert verdict(chosen(8), reference, *samples) == ""
    assert verdict(reference + 1, reference, *samples)
    assert verdict(np.where(np.arange(400) < 30, 0, reference), reference, *samples)
    steady = [reference] * 3
    once = reference.copy()
    once[3] += 1
    assert verdict(once, reference, *steady)


def test_bytes_may_be_a_step_apart_here_and_there() -> None:
    reference = RNG.integers(0, 256, (1, 1000)).astype(np.uint8)
    one = reference.copy()
    one[0, :5] ^= 1
    assert verdict(one, reference, reference) == ""
    one[0, :100] ^= 1
    assert verdict(one, reference, reference)
    far = reference.copy()
    far[0, 7] ^= 4
    assert verdict(far, reference, reference)
