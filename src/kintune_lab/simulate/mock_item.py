"""What mock workers are given: a number of seconds."""

from __future__ import annotations

import msgspec

__all__ = ["item", "seconds_of"]


def item(seconds: float) -> bytes:
    """An item that takes so long."""
    return msgspec.msgpack.encode(seconds)


def seconds_of(payload: bytes) -> float:
    """How long the item takes."""
    return msgspec.msgpack.decode(payload, type=float)
