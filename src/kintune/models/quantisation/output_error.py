"""The error of a network's outputs: the norm of the difference as a share of the norm of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["output_error"]


def output_error(outputs: Sequence[Any], reference: Sequence[Any]) -> float:
    """Return the largest norm of an output's error, as a share of the norm of the reference's output.

    Outputs that are no arrays of numbers are left out.  The error is infinite where an output has another shape, is not
    finite where the reference is, or differs from a reference that is all zeros.
    """
    worst = 0.0
    for found, wanted in zip(outputs, reference, strict=True):
        if not _is_numeric(wanted):
            continue
        if not _is_numeric(found) or found.shape != wanted.shape:
            return np.inf
        worst = max(worst, _error(np.asarray(found, np.float64), np.asarray(wanted, np.float64)))
    return worst


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"


def _error(found: Any, wanted: Any) -> float:
    finite = np.isfinite(wanted)
    same = np.where(finite, False, (found == wanted) | (np.isnan(found) & np.isnan(wanted)))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, found - wanted)
    far = float(np.linalg.norm(apart))
    if far == 0.0 or not np.isfinite(far):
        return far if far == 0.0 else np.inf
    norm = float(np.linalg.norm(np.where(finite, wanted, 0.0)))
    return far / norm if norm else np.inf
