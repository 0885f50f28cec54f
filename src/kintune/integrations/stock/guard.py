"""Whether a family's foresee rounds are worth their trials.

The candidates that a model ranks best should be faster than what was measured of the task before: three of four must
beat its median, where a model that knows nothing gets one of two.  A round that found a new best has paid anyhow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

__all__ = ["Guard"]

_HOLDS = 0.75  # share of a foresee round that must beat the median of what was known
_LEAST = 4  # candidates below which a round says nothing
_PAUSE = 3  # full rounds of a family without foresee after its predictions failed at the least size


class Guard:
    """The size of each family's next foresee round: full while predictions hold, halved while not, then a pause."""

    def __init__(self, size: int) -> None:
        self._full = size
        self._sizes: dict[str, int] = {}
        self._paused: Counter[str] = Counter()

    def size(self, family: str) -> int:
        """How many candidates the foresee round after a full round of `family` may have; 0 is none.

        To be asked once after each full round: a pause is counted in these.
        """
        if self._paused[family]:
            self._paused[family] -= 1
            return 0
        return self._sizes.get(family, self._full)

    def judge(self, family: str, before_ms: Sequence[float], round_ms: Sequence[float]) -> None:
        """A foresee round was measured: the task's times before it, and its own; failures are infinite."""
        if not round_ms:
            return
        improved = min(round_ms) < min(before_ms, default=math.inf)
        known = median(before_ms) if before_ms else math.inf
        beaten = sum(time < known for time in round_ms) / len(round_ms)
        size = self._sizes.get(family, self._full)
        if improved or beaten >= _HOLDS:
            self._sizes[family] = min(self._full, 2 * size)
            return
        self._sizes[family] = max(min(_LEAST, self._full), size // 2)
        if size <= _LEAST:
            self._paused[family] = _PAUSE
