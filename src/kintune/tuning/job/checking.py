"""Whether a network of chosen programs runs and computes what the model computes; if not, which programs are at fault.

Pure: it is told what came of each attempt, and says which programs to try next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kintune.core.candidate import Candidate
from kintune.tuning.job.bisection import Bisection

__all__ = ["NetworkCheck"]


class NetworkCheck:
    """The check of the network with `programs` by workload digest.

    Where it fails, `fallback` has programs to fall back on, workload by workload: the culprits are found by bisection.
    Unless the fallback `is_good` as a whole, it is tried first: if that fails as well, no program is at fault, but what
    they all have in common.

    `attempt` has the programs to try next, None when the check is over; then `ok` says whether `settled`, a program for
    each workload, was found good.  `culprits` are the workloads whose program was replaced, `cause` is what was wrong
    with all programs together, at first.
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
        """What was wrong with the attempt, in a line; nothing if it was good."""
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
        """The attempt is wrong, and these of its programs are known to be: nothing needs to be searched for."""
        found = frozenset(workloads) & frozenset(self._changes)
        if self.cause or not found:
            self.observe(cause)
            return
        self.cause = cause
        self.culprits = found
        self._end(ok=True)

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
