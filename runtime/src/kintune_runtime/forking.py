"""Notifies objects in a child process of the fork: threads that held their locks exist only in the parent."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forked", "watch_forks"]


class Forked(Protocol):
    """An object that renews its locks and other state of threads after a fork."""

    def _after_fork(self) -> None:
        """Renew the state; called in the child process, by its only thread."""


_alive: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch_forks(each: Forked) -> None:
    """Call `_after_fork` of this object in child processes, for as long as the object lives."""
    _alive.add(each)


def _after_fork() -> None:
    for each in list(_alive):
        each._after_fork()


os.register_at_fork(after_in_child=_after_fork)
