"""Noise in the values of a graph."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from kintune_lab.fuzz.evaluation import Evaluator
from kintune_lab.fuzz.graph import DrawnGraph, Leaf, as_case
from kintune_lab.fuzz.input_sets import _with_common_noise, noisy_values


@pytest.mark.parametrize("operator", ["InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization"])
def test_norms_of_equal_integers_are_noise(operator: str) -> None:
    """onnxruntime's result depends on the order in which it adds, or is 0 where the reference has the bias."""
    one = np.ones(1, np.float32)
    given = {"x": np.full((1, 1, 4, 50), 65504, np.float32), "scale": one, "bias": one}
    names = list(given)[: 1 if operator.startswith("Mean") else 3]
    node = helper.make_node(operator, names, ["y"])
    drawn = DrawnGraph(17, [node], {**given}, {name: Leaf(constant=False) for name in names})
    evaluator = Evaluator(17)
    drawn.values.update(evaluator.run(node, given))
    moved = [noisy_values(as_case(drawn), evaluator, drawn.values, seed) for seed in range(4)]
    spreads = [np.ptp(np.asarray(each["y"])) for each in moved if each is not None]
    assert spreads
    assert not max(spreads) < 0.1  # or NaN


@pytest.mark.parametrize(
    ("mode", "values", "least"),
    [("cubic", [4e4, -4e4], 1e-3), ("linear", [4e4, 0, -4e4], 1e-3), ("nearest", [4e4, -4e4], 0)],
)
def test_weights_and_coordinates_of_samples_are_rounded(mode: str, values: list[float], least: float) -> None:
    """In the middle these cancel to what weights, or the coordinate in the image, are off; what is nearest stays."""
    given = {"x": np.float32([[[values]]]), "grid": np.zeros((1, 1, 1, 2), np.float32)}
    node = helper.make_node("GridSample", list(given), ["y"], mode=mode, align_corners=1)
    drawn = DrawnGraph(20, [node], {**given}, {"x": Leaf(constant=False), "grid": Leaf(constant=True)})
    evaluator = Evaluator(20)
    drawn.values.update(evaluator.run(node, given))
    moved = [noisy_values(as_case(drawn), evaluator, drawn.values, seed) for seed in range(4)]
    assert least <= max(np.abs(np.asarray(each["y"]) - drawn.values["y"]).max() for each in moved if each) < 1e-1


def test_transforms_have_noise_where_they_are_zero() -> None:
    given = {"x": np.ones((1, 8, 1), np.float32)}
    node = helper.make_node("DFT", ["x"], ["y"])
    drawn = DrawnGraph(17, [node], {**given}, {"x": Leaf(constant=False)})
    evaluator = Evaluator(17)
    drawn.values.update(evaluator.run(node, given))
    moved = noisy_values(as_case(drawn), evaluator, drawn.values, 0)
    assert moved is not None
    assert np.count_nonzero(np.asarray(moved["y"])[0, 1:]) > 7  # of 14; some are 0


def test_norms_of_float64_are_those_of_data_in_float32() -> None:
    """As the standard says by `stash_type`: around a large mean the data itself is rounded."""
    given = {"x": 1e3 + np.arange(8.0).reshape(1, 1, 8) / 64, "scale": np.ones(1), "bias": np.zeros(1)}
    node = helper.make_node("GroupNormalization", list(given), ["y"], num_groups=1)
    drawn = DrawnGraph(21, [node], {**given}, {name: Leaf(constant=False) for name in given})
    evaluator = Evaluator(21)
    drawn.values.update(evaluator.run(node, given))
    moved = noisy_values(as_case(drawn), evaluator, drawn.values, 0)
    assert moved is not None
    assert np.abs(np.asarray(moved["y"]) - np.asarray(drawn.values["y"])).max() > 1e-4


def test_what_a_transform_leaves_of_zero_may_be_zero() -> None:
    """So that its reciprocal is infinite with some noise, and not compared."""
    values = np.float32([12.0, 1e-7, 0.5])
    moved = np.array([_with_common_noise(np.random.default_rng(seed), values) for seed in range(12)])
    assert (moved[:, 1] == 0).any()
    assert moved[:, [0, 2]].all()
    assert not (moved == values).any()
