"""How a process ended, in the words that causes of failures are counted by."""

from __future__ import annotations

import signal

__all__ = ["describe_end"]


def describe_end(code: int) -> str:
    """In a few words; `code` is the exit code, or minus the number of the signal that ended it."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
