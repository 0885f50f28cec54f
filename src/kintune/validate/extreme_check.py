"""Compares a tuned network with a runtime of the model itself on extreme inputs (`runtime/extreme_inputs.py`).

Such inputs tell right from wrong, and nothing else: errors on them count for no number of the result.  A set that the
other runtime refuses, or of which rounding leaves nothing to say, is not compared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from kintune.core.kernel_call import CallRecord
from kintune.errors import EngineError
from kintune.models.onnx_nodes import nodes
from kintune.runtime.extreme_inputs import MOST_ORDINARY, ExtremeInputs
from kintune.runtime.hybrid_package import kernel_manifests
from kintune.runtime.inputs import Array
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.numerics import NOTHING_COMPARED, Difference, compare_outputs, worse
from kintune.validate.plain_outputs import load_outputs, name_parts
from kintune.validate.validation_run import FAST, REFERENCES, TUNED, ValidationRun
from kintune.wire.worker_client import WorkerRefused

__all__ = ["ExtremeCheck", "ExtremeDifference", "hides_nan", "settled", "spreads", "typical"]

_log = logging.getLogger(__name__)

_MOST_SECONDS = 1.5  # of all runs on extreme inputs: a tenth of the shortest compilations
_LEAST_SECONDS, _TIMES = 10.0, 50  # a run that takes longer than this, and than so many usual ones, is ended
_REACH = 8  # places by which one kernel spreads a value, at most: half a tile, or a stride
_WINOGRAD = "winograd"
_MOST_ORDINARY_HALF = 2.0**14
_HIDES_NAN = frozenset(
    (
        *("MaxPool", "GlobalMaxPool", "MaxRoiPool", "ReduceMax", "ReduceMin", "GridSample"),
        *("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"),
    )
)
_QUANTISES = ("QuantizeLinear", "DynamicQuantize", "QLinear", "QGemm", "QAttention", "QEmbed")
_UNCLEAR = 16  # times what rounding moves: as far as another order of sums may move what a network enlarges so much
_FLIPS = 0.05  # of the norm of an output: what flips of quantised values may change
_FLUSHED = "flushing, on extreme inputs"


class ExtremeDifference(NamedTuple):
    """The sets of extreme inputs that were compared, by name, and the first disagreement in a line, if there is one.

    `wrong_on` names the set of it.
    """

    compared: tuple[str, ...] = ()
    disagreement: str = ""
    wrong_on: str = ""


class ExtremeCheck:
    """The check of one validation: `start` runs both sides on each set, `compare` compares what they returned."""

    def __init__(self, run: ValidationRun) -> None:
        self._run = run
        self._sets: dict[int, ExtremeInputs] = {}
        self._reference: BaselineProcess | None = None
        self._refused: dict[tuple[int, str], str] = {}
        self._limit_s = _LEAST_SECONDS
        self._ended_at: dict[str, int] = {}
        self._with_denormals: set[int] = set()
        self._is_clear = True
        self.ended: dict[str, str] = {}
        """By name, on which set a process has ended or took too long, and how."""

    def start(self, tuned: BaselineProcess, references: Sequence[BaselineProcess]) -> None:
        """Runs the tuned network and a reference once on each set; then both have the first ordinary inputs again.

        Nothing is run without a reference that runs the model itself.  Slow networks run on fewer sets, but on all of
        other shapes.
        """
        run = self._run
        self._reference = next((each for each in references if each.name in REFERENCES), None)
        if not run.item.extremes or self._reference is None:
            return
        both = (self._reference, tuned)
        self._limit_s = max(_LEAST_SECONDS, *(_TIMES * run.once_ms.get(each.name, 0.0) / 1e3 for each in both))
        self._sets = run.inputs.add_extremes(run.manifest.hybrid is not None)
        shaped, first = run.inputs.shaped, run.item.first_extreme
        took_ms = 0.0
        for at in sorted(self._sets, key=lambda at: (at not in shaped, self._sets[at].name != first)):
            took_ms += sum(self._run_once(each, at) for each in both)
            if took_ms > _MOST_SECONDS * 1e3 and at not in shaped:
                break
        for each in both:
            if each.name not in self.ended and (run.item.timed or run.item.find_slow):
                with suppress(EngineError):  # whoever needs it next says so
                    each.turn(run.once(each.name, 0), run.conditions.prepare_seconds)

    def _run_once(self, process: BaselineProcess, at: int) -> float:
        """Runs a process that has not ended on one set; returns the milliseconds."""
        if process.name not in self.ended:
            process.met_denormals = False
            try:
                took_ms = sum(process.turn(self._run.once(process.name, at), self._limit_s))
            except WorkerRefused as error:
                self._refused[at, process.name] = str(error)
            except EngineError as error:
                self.ended[process.name] = f"{error}, on {self._sets[at].name}"
                self._ended_at[process.name] = at
            else:
                self._with_denormals |= {at} if process.met_denormals else set()
                return took_ms
        return 0.0

    def compare(self, ordinary: Difference) -> ExtremeDifference:
        """Compares the outputs of both on each set; `ordinary` is the difference on ordinary inputs.

        Where nothing can be said of the outputs there, or they are wrong, no set is looked at a second time: that takes
        longer than all else for a large network, and tells nothing new.
        """
        self._is_clear = not ordinary.disagreement and not ordinary.doubtful
        if self._reference is None:
            return ExtremeDifference()
        compared, wrong, reference = [], dict[str, str](), self._reference.name
        for at, each in self._sets.items():
            if not self._has_run(reference, at):
                self._say(
                    each, f"{reference} has not run on them: {self._refused.get((at, reference), 'no time is left')}"
                )
            elif (at, TUNED) in self._refused:
                wrong[each.name] = f"it does not run on {each.name}: {self._refused[at, TUNED]}"
            elif self._has_run(TUNED, at) and self._run.conditions.max_error is None:
                found = self._difference(at, each)
                if found.disagreement:
                    wrong[each.name] = f"{found.disagreement} ({reference}, on {each.name})"
                elif found.doubtful:
                    self._say(each, found.doubtful)
                else:
                    compared.append(each.name)
        if TUNED in self.ended:
            wrong[self._sets[self._ended_at[TUNED]].name] = f"it does not run: {self.ended[TUNED]}"
        wrong_on, disagreement = next(iter(wrong.items()), ("", ""))
        return ExtremeDifference(tuple(compared), disagreement, wrong_on)

    def _has_run(self, name: str, at: int) -> bool:
        return Path(self._run.outputs_path(name, at)).exists()

    def _say(self, each: ExtremeInputs, why: str) -> None:
        _log.info(f"not compared on {each.name}: {why}")

    def _difference(self, at: int, each: ExtremeInputs) -> Difference:
        """The difference on one set: with less and less that is held against the tuned network, until there is none."""
        assert self._reference is not None
        run, name = self._run, self._reference.name
        found = self._compare(at, each, name)
        flushes = run.flushes and not run.has_flushed
        if found.disagreement and flushes and at in self._with_denormals:
            name = self._run_other(_FLUSHED, at, flush=True) or name
            found = self._compare(at, each, name)
        if not found.disagreement:
            return found
        is_moved = not each.is_ordinary and (self._spreading > 0 or self._quantises)  # an activation may hide where
        if is_moved or each.is_borderline:
            return found._replace(disagreement="", doubtful=found.disagreement)
        if not self._is_clear:
            return found._replace(disagreement="", doubtful=f"{found.disagreement}; nor are ordinary inputs clear")
        if name == "onnxruntime":
            self._run_other(FAST, at, flush=run.has_flushed)
        unsteady = run.unsteady([self._reference], at)
        found = self._compare(at, each, name, run.samples([self._reference], at), unsteady)
        if found.disagreement and found.norm <= max(_UNCLEAR * (found.noise or 0.0), _FLIPS * self._quantises):
            return found._replace(disagreement="", doubtful=found.disagreement)
        return found

    def _run_other(self, label: str, at: int, *, flush: bool) -> str:
        """Runs onnxruntime in another way on all sets, once; returns its label if it has run on this one, else ""."""
        assert self._reference is not None
        if not any(self._has_run(label, each) for each in self._sets) and label not in self.ended:
            with self._run.process(self._reference.name, exact=label != FAST, label=label, flush=flush) as process:
                try:
                    process.prepare(self._run.conditions.prepare_seconds)
                except EngineError as error:
                    self.ended[label] = str(error)
                else:
                    for each in self._sets:
                        self._run_once(process, each)
        return label if self._has_run(label, at) else ""

    def _compare(
        self,
        at: int,
        each: ExtremeInputs,
        reference: str,
        samples: Sequence[Sequence[Array]] = (),
        unsteady: Mapping[str, str] = {},
    ) -> Difference:
        run = self._run
        parts = load_outputs(run.outputs_path(reference, at))
        names = name_parts(list(parts), [tensor.name for tensor in run.combination.outputs])
        outputs, expected = run.outputs(TUNED, at), list(parts.values())
        rtol, atol = run.conditions.rtol, run.conditions.atol
        if len(outputs) != len(expected):
            return compare_outputs(names, outputs, expected, rtol, atol)
        worst = NOTHING_COMPARED
        for position, (name, output, wanted) in enumerate(zip(names, outputs, expected, strict=True)):
            reach = 0 if each.is_ordinary else _REACH * self._spreading
            output = settled(output, wanted, reach, hides_nan=self._hides_nan and not each.is_ordinary)
            own = [[sample[position]] for sample in samples if len(sample) == len(expected)]
            near = atol * typical(wanted)
            found = compare_outputs([name], [output], [wanted], rtol, near, own, unsteady, run.sigmoids)
            worst = worse(worst, found)
        return worst

    @cached_property
    def _hides_nan(self) -> bool:
        return hides_nan(self._run.model)

    @cached_property
    def _quantises(self) -> bool:
        """Whether the model rounds values to integers while it runs."""
        return any(node.op_type.startswith(_QUANTISES) for node in nodes(self._run.model))

    @cached_property
    def _spreading(self) -> int:
        """The number of kernels that have NaN in other places than the model."""
        manifests = kernel_manifests(self._run.item.tuned)
        return sum(spreads(record) for each in manifests for calls in each.calls for record in calls)


def spreads(record: CallRecord) -> bool:
    """Whether a kernel has NaN in other places than the model: it multiplies by zeros that the model does not have, or
    leaves out products with zeros.

    Those are Winograd's convolution, transposed ones, whose parts have kernels padded with zeros, and attention, which
    does not read keys that a causal mask hides.
    """
    ops = [node.op.lower() for node in record.nodes]
    unlike = any(("conv" in op and "transpose" in op) or "attention" in op for op in ops)
    return record.program.startswith(_WINOGRAD) or unlike


def hides_nan(model: onnx.ModelProto) -> bool:
    """Whether a model has operators that give numbers for NaN in onnxruntime, and NaN elsewhere."""
    return any(node.op_type in _HIDES_NAN for node in nodes(model))


def settled(output: Array, expected: Array, reach: int = 0, *, hides_nan: bool = False) -> Array:
    """The output with the reference's values in places where nothing can be told of a difference.

    These are places in which both have no number, an infinity or NaN, or one beyond `MOST_ORDINARY`: which of them
    it is depends on the order of additions.  With a `reach`, they are also those where kernels may have spread such a
    value (`spreads`): no farther than that along each axis, in the same element of a batch and whatever
    the channel.  Channels are axis 1, or the last one where only then the others are equally long.  In such places
    a number is no infinity.  Where the reference `hides_nan`, they are also those where only the output is NaN, and all
    integers, which may come from NaN.
    """
    if hides_nan and output.shape == expected.shape and output.dtype == expected.dtype and output.dtype.kind in "biu":
        return expected
    if output.shape != expected.shape or output.dtype != expected.dtype or expected.dtype.kind in "biuU":
        return output
    extreme, theirs = _are_extreme(expected), _are_extreme(output)
    left_out = extreme & theirs
    if hides_nan:
        left_out |= np.isnan(output)
    if reach and expected.ndim > 2:
        extents = expected.shape[1:]
        channels = expected.ndim - 1 if len(set(extents[1:])) > 1 and len(set(extents[:-1])) == 1 else 1
        near = np.asarray(extreme.any(channels, keepdims=True))
        for axis in range(1, expected.ndim):
            if axis != channels:
                near = _widened(near, axis, min(reach, expected.shape[axis]))
        left_out |= near & (theirs | np.isfinite(expected.astype(np.float64)))
    return np.where(left_out, expected, output)


def _are_extreme(values: Array) -> npt.NDArray[np.bool_]:
    """Where values are infinite, no numbers or so large that they swallow others."""
    most = MOST_ORDINARY if values.dtype != np.float16 else _MOST_ORDINARY_HALF
    with np.errstate(invalid="ignore"):
        return np.asarray(~(np.abs(values.astype(np.float64)) <= most))


def _widened(mask: npt.NDArray[np.bool_], axis: int, reach: int) -> npt.NDArray[np.bool_]:
    """True where any value no farther than `reach` along the axis is true."""
    widths = [(reach, reach) if each == axis else (0, 0) for each in range(mask.ndim)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(mask, widths), 2 * reach + 1, axis)
    return np.asarray(windows.any(-1))


def typical(expected: Array) -> float:
    """How large values are that are no extremes of an output: their median, if it is above 1; else 1."""
    if expected.dtype.kind in "biuU":
        return 1.0
    numbers = np.abs(expected.astype(np.float64))
    present = numbers[np.isfinite(numbers) & (numbers > 0)]
    return max(1.0, float(np.median(present))) if present.size else 1.0
