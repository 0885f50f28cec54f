from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.models.quantisation.layer_choice import MOST_TOGETHER, Layer, LayerChoice, choose_layers

Layers = dict[str, tuple[float, float]]
"""What each layer saves, and its error alone."""

LAYERS = st.dictionaries(
    st.sampled_from([f"layer {number}" for number in range(30)]),
    st.tuples(st.floats(0.0, 1e3), st.floats(0.0, 1.0)),
    max_size=30,
)


def choose(layers: Layers, limit: float, coupling: float = 1.0) -> LayerChoice:
    return choose_layers(
        [Layer(name, saved) for name, (saved, _) in layers.items()],
        limit,
        lambda name: layers[name][1],
        lambda names: error_of(layers, names, coupling),
    )


def error_of(layers: Layers, names: frozenset[str], coupling: float = 1.0) -> float:
    return coupling * math.sqrt(sum(layers[name][1] ** 2 for name in sorted(names)))


def order_of(layers: Layers) -> list[str]:
    return sorted(layers, key=lambda name: (layers[name][1] ** 2 / max(layers[name][0], 1e-9), -layers[name][0], name))


@given(LAYERS, st.floats(0.0, 3.0), st.floats(1.0, 3.0))
def test_the_choice_was_measured_to_be_within_the_limit(layers: Layers, limit: float, coupling: float) -> None:
    choice = choose(layers, limit, coupling)
    assert choice.error <= limit
    assert choice.error == (error_of(layers, choice.layers, coupling) if choice.layers else 0.0)
    assert choice.layers.isdisjoint(choice.left)
    assert choice.layers | frozenset(choice.left) == frozenset(layers)


@given(LAYERS, st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_larger_budget_never_drops_a_layer_before_the_first_that_is_left_out(
    layers: Layers, one: float, other: float
) -> None:
    def first_left(limit: float) -> int:
        choice = choose(layers, limit)
        return next((at for at, name in enumerate(order_of(layers)) if name not in choice.layers), len(layers))

    assert first_left(min(one, other)) <= first_left(max(one, other))


@given(LAYERS)
def test_layers_that_all_fit_are_all_chosen_by_one_measurement(layers: Layers) -> None:
    calls: list[frozenset[str]] = []

    def together(names: frozenset[str]) -> float:
        calls.append(names)
        return 0.5

    found = choose_layers([Layer(name, 1.0) for name in layers], 0.5, _never, together)
    assert found.layers == frozenset(layers)
    assert found.left == ()
    assert len(calls) == bool(layers)


@given(LAYERS, st.floats(0.0, 3.0))
def test_measurements_are_limited(layers: Layers, limit: float) -> None:
    calls: list[frozenset[str]] = []

    def together(names: frozenset[str]) -> float:
        calls.append(names)
        return error_of(layers, names)

    choose_layers([Layer(name, saved) for name, (saved, _) in layers.items()], limit, lambda n: layers[n][1], together)
    assert len(calls) <= MOST_TOGETHER + 1


def test_the_worst_layer_is_left_out() -> None:
    layers = {"first": (1.0, 0.9), "middle": (50.0, 0.1), "wide": (80.0, 0.1), "last": (1.0, 0.05)}
    choice = choose(layers, 0.2)
    assert choice.layers == {"middle", "wide", "last"}
    assert choice.left == ("first",)
    assert choice.everything == pytest.approx(error_of(layers, frozenset(layers)))


def test_the_choice_goes_on_behind_a_layer_that_does_not_fit() -> None:
    layers = {"large": (1e6, 0.9), "small": (1.0, 0.1), "other": (1.0, 0.1)}
    assert order_of(layers)[0] == "large"
    assert choose(layers, 0.2).layers == {"small", "other"}


def test_nothing_may_fit() -> None:
    choice = choose({"a": (1.0, 0.5), "b": (2.0, math.inf)}, 0.1)
    assert choice.layers == frozenset()
    assert choice.error == 0.0
    assert choice.left == ("b", "a")


def _never(name: str) -> float:
    raise AssertionError(name)
