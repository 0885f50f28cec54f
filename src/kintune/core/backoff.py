"""How long to wait between attempts at something that fails; reads no clock."""

from __future__ import annotations

import math

__all__ = ["BackOff"]


class BackOff:
    """Waits in seconds: `first_s`, then each time twice the one before, up to `longest_s`."""

    def __init__(self, first_s: float, longest_s: float = math.inf) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_wait(self) -> float:
        """The wait before the next attempt; the one after it is longer."""
        wait, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return wait

    def reset(self) -> None:
        """Begin with the first wait again, since an attempt has succeeded."""
        self._next_s = self._first_s
