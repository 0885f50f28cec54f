"""Quantises the weights of a job's model to 4 or 8 bits before it is imported, if the user has asked for that.

Half of the user's inputs choose the layers whose weights are quantised; the others check the choice.  Without any,
different inputs are drawn for the two.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from kintune.core.config import JobSpec
from kintune.core.model import Combination, ModelRef
from kintune.core.quantisation import Quantised
from kintune.errors import ModelError
from kintune.models.constants import constant_values
from kintune.models.importer import load
from kintune.models.onnx_path import onnx_path_of
from kintune.models.quantisation.layer_choice import choose_layers
from kintune.models.quantisation.output_error import output_error
from kintune.models.quantisation.quantiser import Feeds, open_on, run
from kintune.models.quantisation.weights import WeightQuantiser, dequantised, quantised_blocks
from kintune.runtime.inputs import draw_inputs
from kintune.tuning.job.quantised_file import QuantisedModel, quantised_once
from kintune.tuning.job.quantising import HELD_BACK_SHARE, declared_inputs, set_of_inputs, split

__all__ = ["quantise_weights"]

_log = logging.getLogger(__name__)

_SHARE = 0.8  # of the budget, on the inputs of the choice
_STRICTER = 0.7  # of that, after the error was too large on other inputs
_CHOICES = 4
_MOST_SETS = 8  # of inputs on which errors of several layers are measured
_SETS_ALONE = 1  # of inputs on which the error of each single layer is measured
_DRAWS = 4  # sets of inputs for each of the two, where the user gives none


def quantise_weights(spec: JobSpec) -> QuantisedModel:
    """Quantise the large weights of a job's model within its error budget, and write it beside the job's output.

    What an earlier process of the same job has written is used.  Where no layer fits the budget, the model stays as it
    is, and `int8` of what is returned is 0.

    Raises:
        InputError: the user's inputs do not fit the model.
        ModelError: there are no large weights, or the model cannot be read.
    """
    path = onnx_path_of(spec.model)
    options = (spec.options.weights, spec.options.max_error, spec.options.seed)
    return quantised_once(
        spec, path, spec.input_files, options, lambda written: _Quantisation(spec, path).write(written)
    )


class _Quantisation:
    """One quantisation: its inputs, the outputs of the original, and the errors that were measured."""

    def __init__(self, spec: JobSpec, path: Path) -> None:
        self._path, self._threads, self._bits = path, max(1, spec.cores), spec.options.weights
        self._budget = spec.options.max_error
        self._quantiser = WeightQuantiser(path, self._bits)
        self._choosing, self._held_back, self._apart = _inputs(spec)
        original = open_on(path, self._threads)
        self._wanted = [run(original, feeds) for feeds in self._choosing]
        self._wanted_held_back = [run(original, feeds) for feeds in self._held_back]

    def write(self, written: Path) -> Quantised:
        """Choose the layers and write the model with their weights quantised; no file is left if there are none."""
        layers, limit = self._quantiser.layers, _SHARE * self._budget
        names = [layer.name for layer in layers]
        everything = self._measured(frozenset(names), written)[0]
        if everything[0] <= limit and everything[1] <= HELD_BACK_SHARE * self._budget:
            return self._result(names, (), everything[1], everything[0])
        weights = _SwitchedWeights(self._quantiser, self._bits, self._threads)
        alone: dict[str, float] = {}

        def error_alone(name: str) -> float:
            if name not in alone:
                alone[name] = self._error_of(weights, frozenset((name,)), _SETS_ALONE)
            return alone[name]

        for _ in range(_CHOICES):
            choice = choose_layers(layers, limit, error_alone, lambda some: self._error_of(weights, some, _MOST_SETS))
            if not choice.layers:
                break
            (_, checked), within = self._measured(choice.layers, written)
            _log.info(
                f"weights of {len(choice.layers)} of {len(layers)} layers in {self._bits} bits: error {checked:.3g}"
            )
            if within:
                return self._result(sorted(choice.layers), choice.left, checked, everything[0])
            limit *= _STRICTER
        written.unlink(missing_ok=True)
        return Quantised(len(layers), 0, tuple(names), everything=everything[0], bits=self._bits)

    def _result(self, chosen: Sequence[str], left: tuple[str, ...], error: float, everything: float) -> Quantised:
        held_back = len(self._held_back) if self._apart else 0
        products = len(self._quantiser.layers)
        return Quantised(products, len(chosen), left, error, everything, held_back, self._bits)

    def _measured(self, layers: frozenset[str], written: Path) -> tuple[tuple[float, float], bool]:
        """The errors in onnxruntime with these layers quantised, on the inputs of the choice and on those held back,
        and whether the latter is small enough.
        """
        self._quantiser.save(layers, written)
        session = open_on(written, self._threads)
        errors = [
            max(output_error(run(session, feeds), wanted) for feeds, wanted in zip(sets, outputs, strict=True))
            for sets, outputs in ((self._choosing, self._wanted), (self._held_back, self._wanted_held_back))
        ]
        return (errors[0], errors[1]), errors[1] <= HELD_BACK_SHARE * self._budget

    def _error_of(self, weights: _SwitchedWeights, layers: frozenset[str], sets: int) -> float:
        """The largest error with these layers quantised, on the first of the sets of inputs."""
        return max(
            output_error(weights.run(layers, feeds), wanted)
            for feeds, wanted in zip(self._choosing[:sets], self._wanted[:sets], strict=True)
        )


class _SwitchedWeights:
    """One session in which the weights of each layer are an input: as they are, or quantised and dequantised."""

    def __init__(self, quantiser: WeightQuantiser, bits: int, threads: int) -> None:
        self._switch = quantiser.switch
        self._plain = {layer.name: quantiser.matrix(layer.name) for layer in quantiser.layers}
        self._rounded = {
            name: dequantised(*quantised_blocks(weights, bits), bits, len(weights))
            for name, weights in self._plain.items()
        }
        with tempfile.TemporaryDirectory(prefix="kintune-weights-") as directory:
            path = Path(directory) / "switched.onnx"
            onnx.save(quantiser.switched(), path)
            self._session = open_on(path, threads)

    def run(self, layers: frozenset[str], feeds: Feeds) -> list[object]:
        """The outputs with these layers quantised."""
        weights = {self._switch(name): (self._rounded if name in layers else self._plain)[name] for name in self._plain}
        return run(self._session, {**feeds, **weights})


def _inputs(spec: JobSpec) -> tuple[list[Feeds], list[Feeds], bool]:
    """Returns sets of inputs for the choice, those that are held back from it, and whether the two differ."""
    path = onnx_path_of(spec.model)
    if not spec.input_files:
        combinations, bound = _imported(spec.model, path)
        first = spec.options.seed
        drawn: list[list[Feeds]] = [
            [
                {**draw_inputs(each.inputs, seed), **bound}
                for seed in range(start, start + _DRAWS)
                for each in combinations
            ]
            for start in (first, first + _DRAWS)
        ]
        return drawn[0], drawn[1], True
    combinations, bound = declared_inputs(path, spec.model)
    chosen, others = split(spec.input_files)
    sets: list[list[Feeds]] = [
        [set_of_inputs(combinations, bound, file) for file in files[:_MOST_SETS]] for files in (chosen, others)
    ]
    return sets[0], sets[1], chosen != others


def _imported(ref: ModelRef, path: Path) -> tuple[list[Combination], dict[str, Any]]:
    """Returns the inputs of the model with each combination of its shapes, and the values of bound inputs by name.

    If the compiler can import the model, the former also say what values an input can have.
    """
    try:
        models = [load(each) for each in ref.each()]
    except ModelError:  # parts of it run in onnxruntime
        return declared_inputs(path, ref)
    bound = {name: constant_values(constant) for name, constant in models[0].constants.items()}
    return [Combination(model.inputs, ()) for model in models], bound
