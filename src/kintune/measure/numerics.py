"""How far two sets of outputs are apart, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kintune.graph.inputs import Array

__all__ = ["Difference", "compare_outputs"]


class Difference(NamedTuple):
    """The largest errors over all outputs, and the first disagreement as one line (empty when there is none).

    `relative` divides each error by the magnitude of the reference value, or by that output's typical magnitude (the
    median of its values that are not zero) where the value is smaller: an error that is small for the output is not
    made large by a value that happens to be near zero.
    """

    absolute: float
    relative: float
    disagreement: str


def compare_outputs(
    names: Sequence[str], outputs: Sequence[Array], reference: Sequence[Array], rtol: float, atol: float
) -> Difference:
    """Compare outputs with a reference's, position by position; `names` are for the message.

    Floating-point values agree when |a - b| <= atol + rtol |b|, infinities and not-a-numbers when both are the same,
    integers and booleans when they are equal.  Outputs whose number or shapes differ are infinitely far apart.
    """
    if len(outputs) != len(reference):
        return Difference(np.inf, np.inf, f"{len(outputs)} outputs instead of {len(reference)}")
    worst = Difference(0.0, 0.0, "")
    for name, output, expected in zip(names, outputs, reference, strict=True):
        found = _compare(name, output, expected, rtol, atol)
        worst = Difference(
            max(worst.absolute, found.absolute),
            max(worst.relative, found.relative),
            worst.disagreement or found.disagreement,
        )
    return worst


def _compare(name: str, output: Array, expected: Array, rtol: float, atol: float) -> Difference:
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
    disagreement = ""
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), error.shape)
        place = ", ".join(str(int(i)) for i in at)
        bound = "" if exact else f" by more than atol {atol:g} + rtol {rtol:g}"
        disagreement = (
            f"output {name!r}: {np.count_nonzero(wrong)} of {wrong.size} values differ{bound},"
            f" most at [{place}]: {a[at]:.6g} instead of {b[at]:.6g}"
        )
    return Difference(float(error.max()), float(relative.max()), disagreement)


def _same(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where both are the same value, infinities and not-a-numbers included."""
    same: npt.NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return same
