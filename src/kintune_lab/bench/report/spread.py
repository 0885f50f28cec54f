"""Medians with what they lie among, and means of ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from kintune_lab.experiment.tables import Scalar

__all__ = ["SampleSpread", "geometric_mean", "numbers", "spread_of"]


class SampleSpread(msgspec.Struct, frozen=True):
    """The median of `count` values, the smallest and the largest of them."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        middle = _digits(self.median)
        return middle if self.count < 2 else f"{middle} ({_digits(self.low)} to {_digits(self.high)})"


def spread_of(values: Sequence[float]) -> SampleSpread | None:
    """The spread of `values`; None of none."""
    if not values:
        return None
    return SampleSpread(statistics.median(values), min(values), max(values), len(values))


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of `values`; None of none, and 0 if one is not positive."""
    if not values:
        return None
    if min(values) <= 0:
        return 0.0
    return math.exp(statistics.fmean(math.log(value) for value in values))


def numbers(values: Iterable[Scalar]) -> list[float]:
    """The finite numbers among `values`."""
    return [
        float(value)
        for value in values
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ]


def _digits(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
