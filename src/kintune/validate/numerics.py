"""How far two sets of outputs are apart, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kintune.runtime.inputs import Array
from kintune.validate.noise import FACTOR, MOST, allow

__all__ = ["Difference", "compare_outputs", "worse"]


class Difference(NamedTuple):
    """The largest errors over all outputs, and the first disagreement as one line (empty when there is none).

    `relative` divides each error by the magnitude of the reference value, or by that output's typical magnitude (the
    median of its values that are not zero) where the value is smaller: an error that is small for the output is not
    made large by a value that happens to be near zero.  `noise` is how far the reference moves with noise, as a share
    of the deviation of its values, where that had to be looked at; else None.
    """

    absolute: float
    relative: float
    disagreement: str
    noise: float | None = None


def compare_outputs(
    names: Sequence[str],
    outputs: Sequence[Array],
    reference: Sequence[Array],
    rtol: float,
    atol: float,
    samples: Sequence[Sequence[Array]] = (),
) -> Difference:
    """Compare outputs with a reference's, position by position; `names` are for the message.

    Floating-point values agree when |a - b| <= atol + rtol |b|, infinities and not-a-numbers when both are the same,
    integers and booleans when they are equal.  Outputs whose number or shapes differ are infinitely far apart.

    `samples` are the reference's outputs with noise: values that do not agree may differ by what these allow, see
    `kintune.validate.noise.allow`.
    """
    if len(outputs) != len(reference):
        return Difference(np.inf, np.inf, f"{len(outputs)} outputs instead of {len(reference)}")
    worst = Difference(0.0, 0.0, "")
    for position, (name, output, expected) in enumerate(zip(names, outputs, reference, strict=True)):
        found = _compare(name, output, expected, rtol, atol, [sample[position] for sample in samples])
        worst = worse(worst, found)
    return worst


def worse(one: Difference, other: Difference) -> Difference:
    """The larger of each number, and the first disagreement."""
    noises = [found.noise for found in (one, other) if found.noise is not None]
    return Difference(
        max(one.absolute, other.absolute),
        max(one.relative, other.relative),
        one.disagreement or other.disagreement,
        max(noises, default=None),
    )


def _compare(
    name: str, output: Array, expected: Array, rtol: float, atol: float, samples: Sequence[Array]
) -> Difference:
    if output.shape != expected.shape:
        return Difference(np.inf, np.inf, f"output {name!r} has shape {output.shape} instead of {expected.shape}")
    if not output.size:
        return Difference(0.0, 0.0, "")
    exact = expected.dtype.kind in "biu"
    a, b = np.asarray(output, np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(_same(a, b), 0.0, np.abs(a - b))
    error[np.isnan(error)] = np.inf
    magnitude = np.where(np.isfinite(b), np.abs(b), 0.0)
    wrong = error > (0.0 if exact else atol + rtol * magnitude)
    present = magnitude[magnitude > 0]
    with np.errstate(over="ignore"):
        relative = error / np.maximum(magnitude, np.median(present) if present.size else 1.0)
    disagreement, noise, beyond = "", None, ""
    if wrong.any() and samples:
        plain = np.zeros_like(magnitude) if exact else atol + rtol * magnitude
        allowed = allow(output, expected, samples, plain)
        noise = allowed.noise
        beyond = f", and by more than {FACTOR:g} times what rounding moves (a share of {noise:.2g})"
        if not allowed.beyond:
            wrong = allowed.wrong
        elif noise * FACTOR > MOST:
            beyond = f", where rounding alone moves a share of {noise:.2g}: nothing can be said of this output"
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), error.shape)
        place = ", ".join(str(int(i)) for i in at)
        bound = "" if exact else f" by more than atol {atol:g} + rtol {rtol:g}"
        disagreement = (
            f"output {name!r}: {np.count_nonzero(wrong)} of {wrong.size} values differ{bound},"
            f" most at [{place}]: {a[at]:.6g} instead of {b[at]:.6g}{beyond}"
        )
    return Difference(float(error.max()), float(relative.max()), disagreement, noise)


def _same(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where both are the same value, infinities and not-a-numbers included."""
    same: npt.NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return same
