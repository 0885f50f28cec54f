"""What is wrong with a spec."""

from __future__ import annotations

from kintune.errors import InputError

__all__ = ["SpecError"]


class SpecError(InputError):
    """A spec cannot be used; the message begins with its file and line."""
