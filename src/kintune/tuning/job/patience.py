"""Runs a computation with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["within"]


def within(seconds: float, run: Callable[[], str]) -> str:
    """Return what `run` returns, or an empty text if it fails or has not returned within this many seconds.

    In the latter case it goes on in a thread of its own, which ends with the process.
    """
    found: list[str] = []

    def keep() -> None:
        with suppress(Exception):
            found.append(run())

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else ""
