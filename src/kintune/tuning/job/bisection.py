"""Which of several changes make something fail, found by trying some of them at a time.

A binary search finds one of them; the search begins anew among the others until those that are left do no harm.  It is
the classic bisection (Hildebrandt and Zeller, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 2002,
describes the general algorithm), for the usual case of one or two changes at fault.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MOST_TRIES", "Bisection"]

MOST_TRIES = 16
"""Attempts after which all changes are given up: the culprits are many, and each attempt costs a build."""


class Bisection:
    """A search among `changes`, all of which together are known to fail, and none of which is known to be fine.

    `attempt` is the set to try next, None when the search is over; `observe` is told what came of it.  In the end
    `culprits` has those that must be left out: the rest was tried together and is fine, or is empty.
    """

    def __init__(self, changes: Sequence[str]) -> None:
        self.culprits: frozenset[str] = frozenset()
        self._left = tuple(dict.fromkeys(changes))
        self._innocent: tuple[str, ...] = ()  # of the part under search, in front of `_suspects`
        self._suspects = self._left
        self._tries = 0
        self._settle()

    @property
    def attempt(self) -> frozenset[str] | None:
        """The changes to make next; None when the search is over."""
        if not self._left:
            return None
        if not self._suspects:
            return frozenset(self._left)  # what is left after a culprit was found
        return frozenset(self._innocent + self._suspects[: len(self._suspects) // 2])

    def observe(self, *, ok: bool) -> None:
        """What came of the attempt."""
        if self.attempt is None:
            raise ValueError("the search is over; there was no attempt")
        self._tries += 1
        if not self._suspects:
            if ok:
                self._left = ()
                return
            self._innocent, self._suspects = (), self._left
        else:
            half = len(self._suspects) // 2
            if ok:
                self._innocent += self._suspects[:half]
                self._suspects = self._suspects[half:]
            else:
                self._suspects = self._suspects[:half]
        self._settle()

    def _settle(self) -> None:
        """Once a single suspect is left, it is a culprit; past the limit all are."""
        if self._tries >= MOST_TRIES:
            self.culprits |= frozenset(self._left)
            self._left = self._suspects = ()
        elif len(self._suspects) == 1:
            self.culprits |= frozenset(self._suspects)
            self._left = tuple(change for change in self._left if change not in self.culprits)
            self._innocent, self._suspects = (), ()
