"""What is made anew in a child process: the threads that held locks, or ran something, are its parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forked", "watch_forks"]


class Forked(Protocol):
    """What wants to know of a fork."""

    def _after_fork(self) -> None:
        """Is called in the child process, by its only thread."""


_alive: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch_forks(each: Forked) -> None:
    """From now on, as long as it lives, `each` is told in child processes that there was a fork."""
    _alive.add(each)


def _after_fork() -> None:
    for each in list(_alive):
        each._after_fork()


os.register_at_fork(after_in_child=_after_fork)
