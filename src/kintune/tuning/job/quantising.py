"""Quantises the model of a job before it is imported, if the user has given calibration files for it.

Half of these files choose the ranges of tensors and the layers that are quantised; the others check the choice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from kintune.core.config import JobSpec, Metric
from kintune.core.model import Combination, ModelRef, Tensor
from kintune.core.quantisation import Quantised
from kintune.errors import InputError, cause_line
from kintune.models.graph_file import open_graph
from kintune.models.onnx_path import onnx_path_of
from kintune.models.quantisation.layer_choice import LayerChoice, choose_layers
from kintune.models.quantisation.output_error import output_error
from kintune.models.quantisation.quantiser import Feeds, Quantiser, check_unquantised, open_on, run
from kintune.models.quantisation.switched import SwitchedModel
from kintune.models.shapes import bind, fit_constants, with_constants
from kintune.runtime.inputs import load_fitting
from kintune.runtime.stored_zip import folder_beside
from kintune.tuning.job.quantised_file import QuantisedModel, quantised_once
from kintune.validate.score import ScoreOrder, score

__all__ = ["HELD_BACK_SHARE", "declared_inputs", "quantise", "set_of_inputs", "split"]

_log = logging.getLogger(__name__)

HELD_BACK_SHARE = 0.9
"""The share of the budget that onnxruntime may use on inputs held back: our kernels round a little differently."""

_SHARE = 0.8  # of the budget, on the inputs of the choice
_STRICTER = 0.7  # of that, after the error was too large on other inputs
_CHOICES = 4
_MOST_SETS = 16  # of inputs on which errors of several layers are measured
_SETS_ALONE = 2  # of inputs on which the error of each single layer is measured


def split(files: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the files for a choice, and the half that is held back from it; a single file is used for both."""
    kept = len(files) - len(files) // 2
    return (tuple(files[:kept]), tuple(files[kept:])) if len(files) > 1 else (tuple(files), tuple(files))


def quantise(spec: JobSpec) -> QuantisedModel:
    """Quantise the model of a job within its error budget, and write it beside the job's output.

    What an earlier process of the same job has written is used.  Where no layer can be quantised within the budget, the
    model stays as it is, and `int8` of what is returned is 0.

    Raises:
        InputError: a calibration file does not fit the model, or the budget is less than what fp32 needs.
        ModelError: the model cannot be quantised; it is quantised already, for example.
    """
    path = onnx_path_of(spec.model)
    check_unquantised(path)
    inputs, constants = declared_inputs(path, spec.model)
    for file in spec.calibration_files:
        load_fitting(inputs, file)

    def write(written: Path) -> Quantised:
        with folder_beside(written, "kintune-int8-") as directory:
            return _Quantisation(spec, path, inputs, constants, directory).write(written)

    options = (spec.options.max_error, spec.options.metric)
    return quantised_once(spec, path, spec.calibration_files, options, write)


def declared_inputs(path: Path, ref: ModelRef) -> tuple[list[Combination], dict[str, Any]]:
    """Returns the inputs of the model with each combination of its shapes, and the values of bound inputs by name.

    The former are without the bound inputs, as the file declares them.
    """
    combinations, constants = [], {}
    for each in ref.each():
        file = open_graph(path, own=each.reads_other_files)
        constants = fit_constants(str(path), file.graph, each.constants)
        fixed = bind(str(path), file.graph, with_constants(str(path), each.shapes, constants), file.weights)
        types = {port.name: port.type.tensor_type.elem_type for port in file.graph.graph.input}
        tensors = [
            Tensor(name, shape, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(types[name])).name)
            for name, shape in fixed.items()
            if name not in constants
        ]
        combinations.append(Combination(tuple(tensors), ()))
    return combinations, constants


def set_of_inputs(combinations: Sequence[Combination], constants: dict[str, Any], file: str) -> Feeds:
    """Returns the set of inputs in a file, with what the other inputs are bound to.

    Raises:
        InputError: it does not fit the model.
    """
    number, arrays = load_fitting(combinations, file)
    names = [tensor.name for tensor in combinations[number].inputs]
    return {**dict(zip(names, arrays, strict=True)), **constants}


class _Quantisation:
    """One quantisation: its inputs, the outputs of the original, and the errors that were measured."""

    def __init__(
        self, spec: JobSpec, path: Path, inputs: Sequence[Combination], constants: dict[str, Any], directory: Path
    ) -> None:
        self._threads = max(1, spec.cores)
        self._inputs, self._constants = inputs, constants
        self._path, self._directory = path, directory
        self._metric: Metric | None = spec.options.metric
        self._budget = spec.options.error_budget or 0.0
        files, self._held_back = split(spec.calibration_files)
        self._files = files[:_MOST_SETS]
        first = next(self._sets(files))
        _log.info(f"finding the ranges of the tensors of {path.name} on {len(files)} sets of inputs")
        self._quantiser = Quantiser(path, self._sets(files), first, directory, self._threads)
        every = [layer.name for layer in self._quantiser.layers]
        self._original = open_on(path, self._threads)
        self._wanted = [run(self._original, feeds) for feeds in self._sets(self._files)]
        quantised = self._quantiser.quantised(every)
        self._switched = SwitchedModel(self._quantiser.plain, quantised, every, self._threads)
        self._alone: dict[str, float] = {}

    def _sets(self, files: Sequence[str]) -> Iterator[Feeds]:
        """The sets of inputs in files, with what the other inputs are bound to."""
        for file in files:
            yield set_of_inputs(self._inputs, self._constants, file)

    def write(self, written: Path) -> Quantised:
        """Choose the layers and write the model with these quantised; no file is left if there are none.

        Raises:
            InputError: the budget is less than what fp32 needs.
        """
        self._check_budget()
        layers, limit = self._quantiser.layers, _SHARE * self._budget
        everything = math.inf
        for _ in range(_CHOICES):
            choice = choose_layers(layers, limit, self._error_alone, self._error_together)
            everything = min(everything, choice.everything)
            if not choice.layers:
                break
            onnx.save(self._quantiser.quantised(choice.layers), written)
            error, is_within = self._check(written)
            _log.info(
                f"{len(choice.layers)} of {len(layers)} layers quantised: error {choice.error:.3g}, checked {error:.3g}"
            )
            if is_within:
                return self._result(choice, error, everything)
            limit *= _STRICTER
        written.unlink(missing_ok=True)
        return Quantised(len(layers), 0, tuple(layer.name for layer in layers), everything=everything)

    def _result(self, choice: LayerChoice, error: float, everything: float) -> Quantised:
        held_back = len(self._held_back) if self._held_back != self._files else 0
        return Quantised(len(self._quantiser.layers), len(choice.layers), choice.left, error, everything, held_back)

    def _check_budget(self) -> None:
        """Refuse an error budget that even fp32 exceeds when sums are added in another order.

        Raises:
            InputError: it does.
        """
        if self._metric is not None:
            return
        moved = self._largest([], self._files)
        if moved > self._budget:
            raise InputError(
                f"max_error {self._budget:g}: even in fp32 the outputs of {self._path.name} move by {moved:.2g} of "
                f"their norm when sums are added in another order; allow at least {2 * moved:.1g}"
            )

    def _error_alone(self, layer: str) -> float:
        """The error of one layer, on few sets of inputs; it is measured once."""
        if layer not in self._alone:
            self._alone[layer] = self._largest([layer], self._files[:_SETS_ALONE])
        return self._alone[layer]

    def _error_together(self, layers: frozenset[str]) -> float:
        """The error of several layers, or what they lose of the user's score."""
        if self._metric is None:
            return self._largest(layers, self._files)
        tried = self._directory / "tried.onnx"
        onnx.save(self._quantiser.quantised(layers), tried)
        return self._lost(self._metric, tried, held_back=False)

    def _largest(self, layers: Sequence[str] | frozenset[str], files: Sequence[str]) -> float:
        """The largest error on these sets of inputs."""
        return max(
            output_error(self._switched.run(layers, feeds), wanted)
            for feeds, wanted in zip(self._sets(files), self._wanted, strict=False)
        )

    def _check(self, written: Path) -> tuple[float, bool]:
        """The error of onnxruntime running a quantised model on inputs held back, and whether it is small enough."""
        try:
            session = open_on(written, self._threads)
            error = max(
                output_error(run(session, feeds), run(self._original, feeds)) for feeds in self._sets(self._held_back)
            )
        except Exception as problem:  # onnxruntime raises its own kinds
            _log.info(f"onnxruntime does not run the quantised model: {cause_line(problem)}")
            return math.inf, False
        if self._metric is not None:
            return error, self._lost(self._metric, written, held_back=True) <= self._metric.max_drop
        return error, error <= HELD_BACK_SHARE * self._budget

    def _lost(self, metric: Metric, file: Path, *, held_back: bool) -> float:
        order = ScoreOrder(metric, self._threads, onnx=str(file), held_back=held_back)
        return max(0.0, metric.reference - score(order))
