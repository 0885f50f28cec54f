"""Compares outputs with those of a reference: within tolerances, and within what rounding does to the model.

Rounding is measured by perturbing inputs and weights in the last place (`perturbed`).  A program that adds in another
order cannot be expected to be nearer to the reference than the perturbed reference is (`noise_allowance`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kintune.core.config import Metric
from kintune.core.model import Tensor
from kintune.core.stage_requests import workload_of
from kintune.core.verdict import Verdict
from kintune.measure.agreement import disagreement
from kintune.runtime.inputs import Array

__all__ = [
    "MAX_NOISE_SHARE",
    "NOISE_FACTOR",
    "NOTHING_COMPARED",
    "SIGMOID_ERROR",
    "Bound",
    "Difference",
    "NoiseAllowance",
    "ProgramComparison",
    "compare_each_program",
    "compare_outputs",
    "judge_score",
    "noise_allowance",
    "perturbed",
    "within_budget",
    "worse",
]


NOISE_FACTOR = 4.0
"""An output may be this many times as far from the reference as the perturbed reference is."""

SIGMOID_ERROR = 5e-7
"""More than the sigmoid of onnxruntime is off: it is a quotient of polynomials, and 0 below -18."""

MAX_NOISE_SHARE = 0.1
"""It may be no farther, as a root mean square, than this share of the deviation of the reference's values."""

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_UNITS = {"float16": 2.0, "bfloat16": 2.0}  # units in the last place; others have `_DEFAULT_UNITS`
_DEFAULT_UNITS = 4.0
_STEP_SHARE = 0.01  # of quantised values, so many may be one step apart: rounding decides some of them
_SHORT = frozenset({"bfloat16", "float16"})
_SHORT_TOLERANCE = 2e-2
_LONGEST = 40  # characters of a string that a message repeats

_Floats = npt.NDArray[np.float64]


class Bound(NamedTuple):
    """How near the errors of an output come to what is allowed: the largest share of it, and that place in words."""

    share: float
    text: str


class Difference(NamedTuple):
    """The largest errors over all outputs, and the first disagreement as one line (empty when there is none).

    `relative` divides each error by the magnitude of the reference value, or by that output's typical magnitude (the
    median of its values that are not zero) where the value is smaller: an error that is small for the output is not
    made large by a value that happens to be near zero.  `noise` is how far the reference moves with noise, as a share
    of the deviation of its values, where that had to be looked at; else None.  `norm` is the largest norm of an
    output's error, as a share of the norm of the reference's output.

    `compared` names the outputs that were compared.  `not_compared` has by name the reason for each that could not be.
    `doubtful` is one line on the first output that rounding alone moves as far as it is from the reference.  `bound` is
    the bound that decided: of all outputs, the one whose errors come nearest to what is allowed.
    """

    absolute: float
    relative: float
    disagreement: str
    noise: float | None = None
    norm: float = 0.0
    compared: frozenset[str] = frozenset()
    not_compared: Mapping[str, str] = {}
    doubtful: str = ""
    bound: Bound = Bound(0.0, "")

    @property
    def verdict(self) -> Verdict:
        """Whether the outputs are right, wrong or not compared."""
        if self.disagreement:
            return Verdict.WRONG
        return Verdict.RIGHT if self.compared else Verdict.NOT_COMPARED


NOTHING_COMPARED = Difference(0.0, 0.0, "")


def compare_outputs(
    names: Sequence[str],
    outputs: Sequence[Array],
    reference: Sequence[Array],
    rtol: float,
    atol: float,
    samples: Sequence[Sequence[Array]] = (),
    unsteady: Mapping[str, str] = {},
    sigmoids: Collection[str] = (),
) -> Difference:
    """Compares outputs with a reference's, position by position; `names` are for the message.

    Floating-point values agree when |a - b| <= atol s + rtol |b|, infinities and not-a-numbers when both are the same,
    integers, booleans and strings when they are equal.  `s` is the root mean square of the output's finite values, and
    1 where that is larger, or 0: an absolute tolerance says nothing of values that are smaller than it.  Outputs whose
    number, shapes or element types differ are infinitely far apart.

    An output that agrees, but is mostly infinite or not a number, is not compared.

    `samples` are the reference's outputs with noise: values that do not agree may differ by what these allow, see
    `noise_allowance`.  An output of another shape is not compared if noise changes its shape, too.  Outputs in
    `unsteady` are not compared if they differ, for the reason there.  Those in `sigmoids` may be off by what
    onnxruntime's sigmoid is; they are not compared if none of their values is larger.
    """
    if len(outputs) != len(reference):
        return Difference(np.inf, np.inf, f"{len(outputs)} outputs instead of {len(reference)}", norm=np.inf)
    worst = NOTHING_COMPARED
    for position, (name, output, expected) in enumerate(zip(names, outputs, reference, strict=True)):
        noisy = [sample[position] for sample in samples]
        found = _compare(name, output, expected, rtol, atol, noisy, SIGMOID_ERROR if name in sigmoids else 0.0)
        if (found.disagreement or found.doubtful) and name in unsteady:
            found = _not_compared(found, name, unsteady[name])
        worst = worse(worst, found)
    return worst


def worse(one: Difference, other: Difference) -> Difference:
    """Combines two differences: the larger of each number, and the first disagreement.

    What was compared in either of them is compared.
    """
    noises = [found.noise for found in (one, other) if found.noise is not None]
    compared = one.compared | other.compared
    not_compared = {**other.not_compared, **one.not_compared}
    return Difference(
        max(one.absolute, other.absolute),
        max(one.relative, other.relative),
        one.disagreement or other.disagreement,
        max(noises, default=None),
        max(one.norm, other.norm),
        compared,
        {name: why for name, why in not_compared.items() if name not in compared},
        one.doubtful or other.doubtful,
        max(one.bound, other.bound, key=lambda bound: (bound.share, bound.text != "")),
    )


def within_budget(found: Difference, max_error: float) -> Difference:
    """Judges a difference by the norm of the error alone, of which at most `max_error` is allowed."""
    if found.norm <= max_error:
        return found._replace(disagreement="")
    if found.disagreement and found.norm == np.inf:
        return found  # it says more: another shape or element type, or which value is not finite
    far = f"its outputs are off by {found.norm:.2g} of their norm, and at most {max_error:g} is allowed"
    return found._replace(disagreement=far)


def judge_score(found: Difference, metric: Metric, score: float) -> Difference:
    """Judges a difference by the user's score of the network alone."""
    found = found._replace(compared=found.compared | found.not_compared.keys(), not_compared={})
    if metric.reference - score <= metric.max_drop:
        return found._replace(disagreement="")
    lost = f"its score by {metric.name} is {score:g} instead of {metric.reference:g}"
    return found._replace(disagreement=f"{lost}, and {metric.max_drop:g} may be lost")


def _compare(
    name: str, output: Array, expected: Array, rtol: float, atol: float, samples: Sequence[Array], floor: float
) -> Difference:
    if output.shape != expected.shape:
        wrong_shape = f"output {name!r} has shape {output.shape} instead of {expected.shape}"
        found = Difference(np.inf, np.inf, wrong_shape, norm=np.inf)
        if all(sample.shape == expected.shape for sample in samples):
            return found
        why = "rounding alone changes its shape"
        doubtful = f"{wrong_shape}, where {why}: nothing can be said of this output"
        return _not_compared(found, name, why)._replace(doubtful=doubtful)
    samples = [sample for sample in samples if sample.shape == expected.shape]
    if output.dtype.kind == "U" == expected.dtype.kind:
        return _compare_strings(name, output, expected)
    if output.dtype != expected.dtype:
        wrong_type = f"output {name!r} is {output.dtype} instead of {expected.dtype}"
        return Difference(np.inf, np.inf, wrong_type, norm=np.inf)
    if not output.size:
        return Difference(0.0, 0.0, "", compared=frozenset({name}))
    exact = expected.dtype.kind in "biu"
    b, error = np.asarray(expected, np.float64), _errors(output, expected)
    finite = np.isfinite(b)
    magnitude = np.where(finite, np.abs(b), 0.0)
    scaled = atol * min(1.0, _root_mean_square(b[finite]) or 1.0)
    plain = np.zeros_like(magnitude) if exact else scaled + rtol * magnitude
    wrong = error > plain
    if floor and wrong.any():
        wrong, largest = error > np.maximum(plain, floor), float(magnitude.max())
        if not wrong.any() and largest <= floor:
            why = f"its values, {largest:.2g} at most, are below the error of onnxruntime's sigmoid"
            return _not_compared(NOTHING_COMPARED, name, why)
        plain = np.maximum(plain, floor)
    present = magnitude[magnitude > 0]
    with np.errstate(over="ignore"):
        relative = error / np.maximum(magnitude, np.median(present) if present.size else 1.0)
    found = Difference(
        float(error.max()), float(relative.max()), "", norm=_share_of_norm(error, magnitude), compared=frozenset({name})
    )
    if not wrong.any():
        if np.count_nonzero(finite) * 2 < finite.size:
            why = f"{_percent(1 - finite.mean())} of its values are infinite or not numbers"
            return _not_compared(found, name, why)
        return found if exact else found._replace(bound=_nearest(name, error, plain, scaled, rtol))
    beyond = ""
    if samples:
        allowed = noise_allowance(output, expected, samples, plain)
        found = found._replace(noise=allowed.noise)
        moves = f"rounding alone moves its values by {allowed.noise:.2g} of their deviation"
        beyond = f", and by more than {NOISE_FACTOR:g} times what rounding moves (a share of {allowed.noise:.2g})"
        if not allowed.beyond:
            wrong = allowed.wrong
        elif allowed.noise * NOISE_FACTOR > MAX_NOISE_SHARE:
            beyond = f", where {moves}: nothing can be said of this output"
            if not (error > atol + rtol * magnitude).any():
                return _not_compared(found, name, f"its values are below the absolute tolerance, and {moves}")
            found = found._replace(doubtful="" if allowed.farther else name)
    if not wrong.any():
        far = f"output {name!r} differs by no more than {NOISE_FACTOR:g} times what rounding alone moves it"
        return found._replace(bound=Bound(1.0, far))
    at = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), error.shape)
    place = ", ".join(str(int(i)) for i in at)
    bound = "" if exact else f" by more than atol {scaled:.3g} + rtol {rtol:g}"
    text = (
        f"output {name!r}: {np.count_nonzero(wrong)} of {wrong.size} values differ{bound},"
        f" most at [{place}]: {_spelled(output[at])} instead of {_spelled(expected[at])}{beyond}"
    )
    if found.doubtful:
        return _not_compared(found, name, moves)._replace(doubtful=text)
    return found._replace(disagreement=text)


def _not_compared(found: Difference, name: str, why: str) -> Difference:
    """The difference of an output that is not compared: its errors count for nothing."""
    return NOTHING_COMPARED._replace(noise=found.noise, not_compared={name: f"output {name!r}: {why}"})


def _nearest(name: str, error: _Floats, plain: _Floats, atol: float, rtol: float) -> Bound:
    """The value whose error comes nearest to the tolerance, as a bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error > 0, error / plain, 0.0)
    at = np.unravel_index(np.argmax(share), share.shape)
    if not share[at]:
        return Bound(0.0, "they are equal")
    place = ", ".join(str(int(i)) for i in at)
    said = f"{atol:.2g} absolute + {rtol:g} relative"
    return Bound(
        float(share[at]),
        f"output {name!r} at [{place}] is off by {error[at]:.2g}, and {plain[at]:.2g} is allowed ({said})",
    )


def _percent(share: float) -> str:
    return "all" if share == 1.0 else f"{100 * share:.0f} %"


def _share_of_norm(error: _Floats, magnitude: _Floats) -> float:
    """Returns the norm of the errors as a share of that of the values; infinite where only the errors have one."""
    far = float(np.linalg.norm(error))
    if far == 0.0 or not np.isfinite(far):
        return far
    norm = float(np.linalg.norm(magnitude))
    return far / norm if norm else np.inf


def _compare_strings(name: str, output: Array, expected: Array) -> Difference:
    wrong = output != expected
    if not wrong.any():
        return Difference(0.0, 0.0, "", compared=frozenset({name}))
    at = np.unravel_index(np.argmax(wrong), wrong.shape)
    place = ", ".join(str(int(i)) for i in at)
    found, wanted = str(output[at])[:_LONGEST], str(expected[at])[:_LONGEST]
    text = (
        f"{np.count_nonzero(wrong)} of {wrong.size} strings differ, first at [{place}]: {found!r} instead of {wanted!r}"
    )
    return Difference(np.inf, np.inf, f"output {name!r}: {text}", norm=np.inf)


class NoiseAllowance(NamedTuple):
    """What noise allows of one output: `wrong` says where its values are still too far away.

    `noise` is how far the reference moves, as a share of the deviation of its values; `beyond` whether the whole output
    is farther away than `MAX_NOISE_SHARE` or `NOISE_FACTOR` times the noise allow, `farther` whether the latter alone
    says so.
    """

    wrong: npt.NDArray[np.bool_]
    noise: float
    beyond: bool
    farther: bool = True


def perturbed(array: Array, seed: Sequence[int]) -> Array:
    """Returns the array with floating-point values changed by a few units in the last place; others unchanged.

    Infinities stay, and no number becomes one.
    """
    name = array.dtype.name
    if name not in _EPSILON or not array.size:
        return array
    most = _UNITS.get(name, _DEFAULT_UNITS) * _EPSILON[name]
    kind = np.float64 if name == "float64" else np.float32
    generator = np.random.default_rng(list(seed))
    share = kind(most) * (generator.random(array.shape, kind) * kind(2) - kind(1))
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.asarray(array, kind)
        moved = np.asarray(wide + wide * share).astype(array.dtype)
    return np.where(np.isfinite(moved), moved, array)


def noise_allowance(output: Array, expected: Array, samples: Sequence[Array], plain: _Floats) -> NoiseAllowance:
    """Returns where `output` is farther from `expected` than `plain` (absolute, an entry a value) and noise allow.

    `samples` are the same output of the reference with noise, at least one.  All have the same shape.
    """
    errors, moves = _errors(output, expected), [_errors(sample, expected) for sample in samples]
    if expected.dtype.kind in "biu":
        return _allow_integers(expected, errors, moves)
    wrong = _too_far(errors, moves, plain)
    if wrong.any():  # quantised values flip here or there: as many in one run as in another, not the same ones
        others = [[*moves[:i], *moves[i + 1 :]] for i in range(len(moves))]
        flips = [
            np.count_nonzero(_too_far(move, rest, plain)) for move, rest in zip(moves, others, strict=True) if rest
        ]
        if np.count_nonzero(wrong) <= NOISE_FACTOR * max(flips, default=0):
            wrong = errors > plain + NOISE_FACTOR * max(float(move.max()) for move in moves)
    lost = np.isinf(errors)  # values that are finite in one of the two alone
    if np.count_nonzero(lost) > NOISE_FACTOR * max(np.count_nonzero(np.isinf(move)) for move in moves):
        wrong = wrong | lost
    excess = np.where(np.isfinite(errors), np.maximum(errors - plain, 0.0), 0.0)
    noise = max(_root_mean_square(np.where(np.isfinite(move), move, 0.0)) for move in moves)
    scale = _scale(np.asarray(expected, np.float64))
    far = _root_mean_square(excess)
    beyond = far > min(NOISE_FACTOR * noise, MAX_NOISE_SHARE * scale)
    return NoiseAllowance(wrong, noise / scale if scale else 0.0, bool(beyond), bool(far > NOISE_FACTOR * noise))


def _allow_integers(expected: Array, errors: _Floats, moves: Sequence[_Floats]) -> NoiseAllowance:
    """Allows integers to differ where noise changes them, and NOISE_FACTOR times as many others.

    Bytes may also differ by one step in a share `_STEP_SHARE` of the values.
    """
    flips = [move > 0 for move in moves]
    most = max(int(np.count_nonzero(flip)) for flip in flips)
    wrong = (errors > 0) & ~np.logical_or.reduce(flips)
    allowed = NOISE_FACTOR * most
    if expected.dtype.itemsize == 1 and expected.dtype.kind in "iu":
        step = max(1.0, NOISE_FACTOR * max(float(move.max()) for move in moves))
        allowed = max(allowed, _STEP_SHARE * expected.size)
        if (errors > step).any():
            return NoiseAllowance(errors > step, most / expected.size, True)
    beyond = np.count_nonzero(wrong) > allowed or np.count_nonzero(errors) > max(MAX_NOISE_SHARE * expected.size, 1.0)
    return NoiseAllowance(wrong if beyond else np.zeros_like(wrong), most / expected.size, bool(beyond))


def _too_far(errors: _Floats, moves: Sequence[_Floats], plain: _Floats) -> npt.NDArray[np.bool_]:
    """Returns where errors exceed the tolerance and NOISE_FACTOR times the moves around them."""
    with np.errstate(invalid="ignore"):
        too_far: npt.NDArray[np.bool_] = errors > plain + NOISE_FACTOR * _around(np.maximum.reduce(moves))
    return too_far


def _around(farthest: _Floats) -> _Floats:
    """Returns for each value the least of the maxima along the lines through it, one line for each axis.

    A few samples are too few to judge a single value by, and an output may have axes with values of different size.
    """
    lines = [farthest.max(axis=axis, keepdims=True) for axis in range(farthest.ndim) if farthest.shape[axis] > 1]
    around = np.broadcast_to(np.asarray(farthest.max()), farthest.shape)
    for line in lines:
        around = np.minimum(around, line)
    return np.asarray(around)


def _errors(output: Array, expected: Array) -> _Floats:
    """Returns the distances of the values; 1 where integers differ that are equal as 64-bit floats."""
    errors = _distances(np.asarray(output, np.float64), np.asarray(expected, np.float64))
    if output.dtype.kind in "iu" and expected.dtype.kind in "iu":
        errors[(errors == 0.0) & (output != expected)] = 1.0
    return errors


def _spelled(value: Any) -> str:
    """Returns a value as messages have it: integers and booleans in full."""
    return str(int(value)) if value.dtype.kind in "biu" else f"{float(value):.6g}"


def _distances(a: _Floats, b: _Floats) -> _Floats:
    """Returns |a - b|: 0 where both are the same infinity or not a number, infinite where only one is."""
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart[np.isnan(apart)] = np.inf
    return apart


def _scale(values: _Floats) -> float:
    """Returns the deviation of the finite values from their mean; their magnitude where they are all equal."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0
    return float(finite.std()) or _root_mean_square(finite)


def _root_mean_square(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


class ProgramComparison(NamedTuple):
    """The workloads that were compared alone; by workload how wrong ones differ, and why some were left out."""

    compared: tuple[str, ...] = ()
    wrong: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}


def compare_each_program(
    tensors: Sequence[Tensor], outputs: Sequence[Array], rtol: float, atol: float
) -> ProgramComparison:
    """Compares the outputs of a network that computes each subgraph twice.

    `tensors` describe the outputs: of each workload first those of its chosen program, then those of the untuned one.
    """
    of: dict[str, list[int]] = {}
    for at, tensor in enumerate(tensors):
        of.setdefault(workload_of(tensor.name), []).append(at)
    wrong: dict[str, str] = {}
    for workload, places in of.items():
        half = len(places) // 2
        for tuned, untuned in zip(places[:half], places[half:], strict=True):
            if workload not in wrong and (
                found := _differ(tensors[tuned], outputs[tuned], outputs[untuned], rtol, atol)
            ):
                wrong[workload] = found
    return ProgramComparison(tuple(of), wrong)


def _differ(tensor: Tensor, actual: Array, expected: Array, rtol: float, atol: float) -> str:
    """Describes in one line how they differ, given the tolerances of their own type; empty when they agree."""
    if not expected.size:
        return ""
    if tensor.dtype in _SHORT:
        rtol, atol = max(rtol, _SHORT_TOLERANCE), max(atol, _SHORT_TOLERANCE)
    return disagreement(actual, expected, rtol, atol)
