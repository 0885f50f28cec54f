"""What became of the calls of a job's webhook."""

from __future__ import annotations

import msgspec

__all__ = ["WebhookOutcome"]


class WebhookOutcome(msgspec.Struct, frozen=True):
    """What became of the calls to one address: how many there were, how the last ended, and when the next is `due`.

    `due` is in seconds since 1970; None: no more is to come.
    """

    url: str
    attempts: int
    outcome: str
    due: float | None

    @property
    def words(self) -> str:
        """In a line."""
        if not self.attempts:
            return f"the webhook {self.url} is about to be called"
        again = "" if self.due is None else "; it will be called again"
        times = "" if self.attempts == 1 else f", call {self.attempts}"
        return f"the webhook {self.url}: {self.outcome}{times}{again}"
