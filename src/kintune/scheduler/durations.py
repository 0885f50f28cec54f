"""How long stages take, learnt from those that were run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Durations"]

_FORGETFUL = 0.05  # least weight of the latest duration, so that what changes is followed


@dataclass
class _Mean:
    seconds: float = 0.0
    count: int = 0

    def learn(self, seconds: float) -> None:
        self.count += 1
        self.seconds += (seconds - self.seconds) * max(1.0 / self.count, _FORGETFUL)


@dataclass
class Durations:
    """Mean seconds by opaque key.

    A key that was never seen is believed to take as long as was said of it last, or else as the others do on average.
    """

    _by_key: dict[str, _Mean] = field(default_factory=dict)
    _said: dict[str, float] = field(default_factory=dict)
    _all: _Mean = field(default_factory=_Mean)

    def learn(self, key: str, seconds: float) -> None:
        """A stage with this key took so long."""
        self._by_key.setdefault(key, _Mean()).learn(seconds)
        self._said.pop(key, None)
        self._all.learn(seconds)

    def hear(self, key: str, seconds: float) -> None:
        """Somebody says that a stage with this key takes so long; what was seen counts more."""
        if key not in self._by_key:
            self._said[key] = seconds

    def knows(self, key: str) -> bool:
        """Whether a stage with this key was ever seen, or something was said of it."""
        return key in self._by_key or key in self._said

    @property
    def mean(self) -> float:
        """Seconds of any stage, whatever its key."""
        return self._all.seconds

    def expected(self, key: str) -> float:
        """Seconds; 0 while nothing was seen at all."""
        known = self._by_key.get(key)
        return self._said.get(key, self._all.seconds) if known is None else known.seconds

    def total(self, counts: Mapping[str, int]) -> float:
        """Seconds that so many stages of each key take one after the other."""
        return sum(count * self.expected(key) for key, count in counts.items())
