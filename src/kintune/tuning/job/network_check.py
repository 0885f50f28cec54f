"""The check whether a network of chosen programs runs and is right; if not, the search for the programs at fault.

It has no side effects: it takes in the result of each attempt and says which programs to try next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kintune.core.candidate import Candidate

__all__ = ["MOST_TRIES", "Bisection", "NetworkCheck"]


class NetworkCheck:
    """The check of the network with `programs` by workload digest.

    If the network fails, the programs at fault are found by bisection between `programs` and `fallback`, which has
    another program for each workload.  Unless the fallback `is_good` as a whole, it is tried first: if it fails as
    well, the fault is not in the programs.

    `attempt` has the programs to try next, None when the check is over.  Then `ok` says whether `settled`, a program
    for each workload, was found good.  `culprits` are the workloads whose program was replaced; `cause` is what was
    wrong with `programs`.
    """

    def __init__(
        self, programs: Mapping[str, Candidate], fallback: Mapping[str, Candidate], *, is_good: bool = False
    ) -> None:
        self.ok: bool | None = None
        self.cause = ""
        self.culprits: frozenset[str] = frozenset()
        self._programs = dict(programs)
        self._fallback = dict(fallback)
        self._changes = [w for w, candidate in self._programs.items() if candidate != self._fallback[w]]
        self._is_good = is_good
        self._attempt: frozenset[str] | None = frozenset(self._changes)
        self._bisection: Bisection | None = None

    @property
    def attempt(self) -> dict[str, Candidate] | None:
        """The programs to try next; None when the check is over."""
        return None if self._attempt is None else self._mixed(self._attempt)

    @property
    def settled(self) -> dict[str, Candidate]:
        """The programs that were found good, culprits replaced."""
        return self._mixed(frozenset(self._changes) - self.culprits)

    def observe(self, cause: str) -> None:
        """Take in what was wrong with the attempt, in a line; empty if it was good.

        Raises:
            ValueError: the check is over.
        """
        if self._attempt is None:
            raise ValueError("the check is over; nothing was to be tried")
        if self._bisection is not None:
            self._bisection.observe(ok=not cause)
            self._go_on(self._bisection)
            return
        if not cause:
            if not self.cause:  # all programs together are good
                self._end(ok=True)
            else:  # the fallback is
                self._search()
            return
        if self.cause or not self._changes:
            self.cause = self.cause or cause
            self._end(ok=False)
            return
        self.cause = cause
        if self._is_good:
            self._search()
        else:
            self._attempt = frozenset()

    def blame(self, workloads: Collection[str], cause: str) -> None:
        """Take in that the attempt is wrong because of the programs of these workloads, so that no search is needed."""
        found = frozenset(workloads) & frozenset(self._changes)
        if self.cause or not found:
            self.observe(cause)
            return
        self.cause = cause
        self.culprits = found
        self._end(ok=True)

    def give_up(self, cause: str) -> None:
        """Take in that no other programs would be better."""
        self.cause = cause
        self._end(ok=False)

    def _search(self) -> None:
        self._bisection = Bisection(self._changes)
        self._go_on(self._bisection)

    def _go_on(self, bisection: Bisection) -> None:
        self._attempt = bisection.attempt
        if self._attempt is None:
            self.culprits = bisection.culprits
            self._end(ok=True)

    def _end(self, *, ok: bool) -> None:
        self.ok = ok
        self._attempt = None

    def _mixed(self, changed: frozenset[str]) -> dict[str, Candidate]:
        return {w: self._programs[w] if w in changed else self._fallback[w] for w in self._programs}


MOST_TRIES = 16
"""Attempts after which all remaining changes count as culprits, since each attempt takes a build."""


class Bisection:
    """A search for the culprits among `changes`, which are known to fail together.

    `attempt` is the set to try next, None when the search is over; `observe` takes in its result.  In the end,
    `culprits` must be left out; the rest was tried together and is good, or is empty.
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
        """Take in the result of the attempt.

        Raises:
            ValueError: the search is over.
        """
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
        """Make the last suspect a culprit, or all remaining changes after `MOST_TRIES` attempts."""
        if self._tries >= MOST_TRIES:
            self.culprits |= frozenset(self._left)
            self._left = self._suspects = ()
        elif len(self._suspects) == 1:
            self.culprits |= frozenset(self._suspects)
            self._left = tuple(change for change in self._left if change not in self.culprits)
            self._innocent, self._suspects = (), ()
