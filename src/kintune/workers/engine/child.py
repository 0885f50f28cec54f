"""A process that the front talks to, wherever it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["Child"]


class Child(Protocol):
    """One process: `name` is how the log calls it, `tail` the last lines that it printed."""

    name: str

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        ...

    def post(self, message: msgspec.Struct) -> None:
        """Send without waiting.

        Raises:
            WireError: the message is over the limit; nothing of it was sent.
            OSError: the process is gone.
        """
        ...

    def bring(self, paths: Sequence[str]) -> None:
        """See that it finds these files of the front, and does not need any that were brought before."""
        ...

    def kill(self, how: str = "") -> str:
        """Kill it with its children, at once; returns `how`, or else how it ended."""
        ...
