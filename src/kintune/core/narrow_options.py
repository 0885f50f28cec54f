"""Which of precision, error budget, weight bits and calibration data can be combined.

The limits of a single option stand with its field (`SharedOptions`).
"""

from __future__ import annotations

from typing import get_args

from kintune.core.config import Precision, WeightBits
from kintune.errors import InputError

__all__ = ["check_narrow_options"]

_QUANTISING = ("int8", "auto")
"""The precisions for which a model may be quantised with calibration data."""

_BITS = " or ".join(map(str, get_args(WeightBits)))


def check_narrow_options(
    precision: Precision,
    *,
    weights: int | None = None,
    max_error: float | None = None,
    calibrated: bool = False,
    scored: bool = False,
    dashes: str = "",
    how_to_calibrate: str = "",
) -> None:
    """Check options that go together or do not; each of them is within its own limits.

    `calibrated` says that there are inputs to quantise with, `scored` that there is a metric.  `dashes` come before the
    names of options, as the command line has them, and `how_to_calibrate` says how such inputs are given.

    Raises:
        InputError: they do not go together; the line says which, and what to do.
    """
    if precision == "int8" and not calibrated:
        raise InputError(
            f"precision int8: inputs are needed to find the ranges of the values; {how_to_calibrate}"
            " (a model that is quantised already needs neither option)"
        )
    if calibrated and precision not in _QUANTISING:
        raise InputError(
            f"calibrate is for a narrower precision: give {dashes}precision {' or '.join(_QUANTISING)} as well"
        )
    if calibrated and weights is not None:
        raise InputError("weights and calibrate both quantise the model: leave one of the two out")
    if scored and weights is not None:
        raise InputError(
            f"weights are chosen by the error at the outputs: give {dashes}max-error, and leave metric out"
        )
    if precision != "fp32":
        return
    if scored:
        raise InputError(f"metric is for a narrower precision: give {dashes}precision bf16, int8 or auto as well")
    if max_error is not None and weights is None:
        raise InputError(
            f"max_error is for a narrower precision: give {dashes}precision bf16, int8 or auto, or {dashes}weights"
            f" {_BITS}, as well"
        )
