"""Quantiles of samples."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["quantile"]


def quantile(ordered: Sequence[float], q: float) -> float:
    """The `q`-quantile (0 to 1) of at least one ascending value, linear between neighbours."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
