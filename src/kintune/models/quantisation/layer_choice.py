"""Chooses the layers that are quantised, to save as much time as an error budget allows.

The errors are measured by functions that are passed as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["MOST_TOGETHER", "Layer", "LayerChoice", "choose_layers"]

MOST_TOGETHER = 40
"""Sets of several layers whose error is measured, at most."""


class Layer(NamedTuple):
    """A layer that may be quantised: its node's `name`, and the estimated microseconds that this saves in a run."""

    name: str
    saved_us: float


class LayerChoice(NamedTuple):
    """The names of the layers to quantise, and the error measured with all of them quantised; 0 if there are none.

    `left` are the other layers, that with the largest error of its own first; `everything` is the error with all layers
    quantised.
    """

    layers: frozenset[str]
    error: float
    left: tuple[str, ...]
    everything: float


def choose_layers(
    layers: Sequence[Layer],
    limit: float,
    alone: Callable[[str], float],
    together: Callable[[frozenset[str]], float],
) -> LayerChoice:
    """Choose layers with an error of at most `limit`, as `together` measures it.

    If the error of all is within the limit, all are chosen, and `alone` is never called.  Else the layers are sorted by
    the square of their error `alone` divided by the time that they save.  Bisection looks for the longest prefix of
    this order within the limit.  The layer that exceeds the limit is left out, and the search goes on with those after
    it.  It ends after `MOST_TOGETHER` measurements by `together`, not counting that of all layers.
    """
    every = frozenset(layer.name for layer in layers)
    everything = together(every) if every else 0.0
    if everything <= limit:
        return LayerChoice(every, everything, (), everything)
    errors = {layer.name: alone(layer.name) for layer in layers}
    order = [layer.name for layer in sorted(layers, key=lambda layer: _cost(layer, errors[layer.name]))]
    chosen: frozenset[str] = frozenset()
    error, tries = 0.0, 0
    while order and tries < MOST_TOGETHER:
        fit = 0
        first_unfit = len(order) + (len(order) < len(every))  # all layers together are known not to fit
        while first_unfit - fit > 1 and tries < MOST_TOGETHER:
            count = (fit + first_unfit) // 2
            found = together(chosen | frozenset(order[:count]))
            tries += 1
            if found <= limit:
                fit, error = count, found
            else:
                first_unfit = count
        chosen |= frozenset(order[:fit])
        order = order[fit + 1 :]
    left = sorted(every - chosen, key=lambda name: (-errors[name], name))
    return LayerChoice(chosen, error, tuple(left), everything)


def _cost(layer: Layer, error: float) -> tuple[float, float, str]:
    """The squared error for each microsecond saved, as a sort key: squared errors of layers roughly add up."""
    if not math.isfinite(error):
        return math.inf, 0.0, layer.name
    return error**2 / max(layer.saved_us, 1e-9), -layer.saved_us, layer.name
