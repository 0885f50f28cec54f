"""A worker that takes its time and does nothing: `python -m kintune_lab.simulate.mock_worker --kind K --fd N`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from kintune.wire import worker_loop as worker

__all__ = ["MockHandler", "item", "main", "seconds_of"]


class MockHandler:
    """Sleeps for as long as an item says."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep

    def begin(self, kind: str, context: bytes) -> None:
        """Do nothing: all stages are alike."""

    def item(self, payload: bytes) -> bytes:
        """Sleep as long as the item says."""
        self._sleep(seconds_of(payload))
        return b""


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main("mock", lambda _arguments: (b"", MockHandler()), argv)


def item(seconds: float) -> bytes:
    """Return an item that takes this many seconds."""
    return msgspec.msgpack.encode(seconds)


def seconds_of(payload: bytes) -> float:
    """Return how many seconds the item takes."""
    return msgspec.msgpack.decode(payload, type=float)


if __name__ == "__main__":
    main()
