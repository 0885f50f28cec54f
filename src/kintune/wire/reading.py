"""What can be wrong with bytes and words that come from another process."""

from __future__ import annotations

import msgspec

__all__ = ["UNREADABLE", "tidy"]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises where bytes are no message; msgspec lets the last two of these through."""

_LONGEST = 400


def tidy(text: str) -> str:
    """Somebody else's words as one short line that can be printed and kept."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
