"""Limits of how long a job may be at work: for its check, and for one item of each stage."""

from __future__ import annotations

import math

import msgspec

__all__ = ["CheckClock", "WorkLimits", "memory_refusal"]

_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
"""What Python, C++, LLVM and the system say."""


class WorkLimits(msgspec.Struct, frozen=True):
    """Limits in seconds; time in which a job waits for resources never counts.

    A job's check is what it does until it begins a stage of a kind that is not in `check_kinds`; it may take `check_s`
    in all.  One item of any stage may take `item_s`.
    """

    check_kinds: tuple[str, ...] = ()
    check_s: float = math.inf
    item_s: float = math.inf

    @property
    def check_refusal(self) -> str:
        """Why a job fails whose check takes too long."""
        return f"checking the model took more than {self.check_s:g} s, which is the limit for this job"

    def item_refusal(self, kind: str) -> str:
        """Why a job fails of which an item of this kind takes too long."""
        return f"the stage {kind!r} took more than {self.item_s:g} s, which is the limit of a stage of this job"


class CheckClock:
    """Adds up the time of a job's check; times are the engine's clock, in seconds."""

    def __init__(self, limits: WorkLimits, used_s: float = 0.0) -> None:
        """`used_s` were used in earlier sessions."""
        self._limits = limits
        self._used_s = used_s
        self._since: float | None = None
        self._over = math.isinf(limits.check_s)

    def began(self, kind: str) -> None:
        """A stage of this kind begins."""
        self._over = self._over or kind not in self._limits.check_kinds

    def alarm_at(self, now: float, *, at_work: bool) -> float | None:
        """Say whether the job is `at_work` from now on; returns when its check will have taken too long, if it may."""
        if self._since is not None:
            self._used_s += now - self._since
        self._since = now if at_work and not self._over else None
        return None if self._since is None else now + max(0.0, self._limits.check_s - self._used_s)


def memory_refusal(said: str, limit_mb: int | None) -> str | None:
    """Why a job is refused whose process may map so many MiB, and has `said` this at the end; None if that is not why.

    Work that has met the limit would meet it again.
    """
    if limit_mb is None or not any(words in said for words in _OUT_OF_MEMORY):
        return None
    return f"the model needs more than the {limit_mb} MB of memory that a job may have here"
