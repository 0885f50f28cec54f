"""The ratio of two latencies that were timed in turns, and how certain it is."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

import msgspec

__all__ = ["PairedRatio", "paired_ratio"]

_LEAST_MS = 1e-9  # of a round, so that nothing is divided by zero
_CONFIDENCE = 0.88


class PairedRatio(msgspec.Struct, frozen=True):
    """The median over `rounds` of our latency divided by another one, and an interval that holds the true median.

    The interval holds it with a probability of 88 % at least, whatever the distribution: its ends are ratios of rounds,
    chosen by the sign test (J. D. Gibbons, S. Chakraborti, Nonparametric Statistical Inference, section 5.2).  Of fewer
    than five rounds, it is their range, which holds it less surely.
    """

    ratio: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, ours_ms: Sequence[float], others_ms: Sequence[float]) -> PairedRatio:
        """Return the ratio of two latencies of the same rounds, in milliseconds and in the order of the rounds.

        Raises:
            ValueError: there is no round, or one has more rounds than the other.
        """
        if not ours_ms:
            raise ValueError("no round was timed")
        found = sorted(ours / max(other, _LEAST_MS) for ours, other in zip(ours_ms, others_ms, strict=True))
        outside = _outside(len(found))
        return cls(statistics.median(found), found[outside], found[-1 - outside], len(found))

    @property
    def spread(self) -> float:
        """The length of the interval."""
        return self.high - self.low

    @property
    def is_decided(self) -> bool:
        """Whether 1 is outside of the interval: one of the two is faster."""
        return not self.low <= 1.0 <= self.high

    def tells(self, level: float) -> bool:
        """Return whether a claim can rest on it: that both are level, or a gain (or loss) larger than its spread.

        They are level if the ratio is within `level` of 1, and the interval within twice that.
        """
        return self.is_level(level) or (self.is_decided and self.spread <= abs(1.0 - self.ratio))

    def is_level(self, level: float) -> bool:
        """Return whether the ratio is within `level` of 1, and the interval within twice that."""
        far = max(1.0 - self.low, self.high - 1.0)
        return abs(1.0 - self.ratio) <= level and far <= 2 * level


def paired_ratio(ours_ms: Sequence[float], others_ms: Sequence[float]) -> float:
    """Return the median over the rounds of our latency divided by the other one.

    Both have one latency a round in milliseconds, in the order of the rounds.  The speed of a machine that others use
    changes from minute to minute, and less within a round.  So the ratio of the two medians of all runs varies up to
    twice as much (`benchmarks/paired_rounds.py`).

    Raises:
        ValueError: there is no round, or one has more rounds than the other.
    """
    return PairedRatio.of(ours_ms, others_ms).ratio


@functools.cache
def _outside(rounds: int) -> int:
    """Return how many of the sorted ratios may be left out at each end of the interval."""
    outside, missed = 0, math.ldexp(1.0, -rounds)
    while outside + 1 < (rounds + 1) // 2:
        missed += math.ldexp(math.comb(rounds, outside + 1), -rounds)
        if 1.0 - 2.0 * missed < _CONFIDENCE:
            break
        outside += 1
    return outside
