"""The time of day at which a row was written; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import TypeAlias

__all__ = ["Clock", "now"]

Clock: TypeAlias = Callable[[], str]
"""The time of day, ISO 8601 in UTC; an argument, so that tests can tell the time."""


def now() -> str:
    """The time of day to the millisecond, such as `2026-01-31T12:00:00.000+00:00`."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
