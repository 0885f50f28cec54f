"""Frames on a byte stream: four bytes of length (little-endian), then that many bytes of body."""

from __future__ import annotations

from kintune.errors import WireError

__all__ = ["DEFAULT_LIMIT", "HEADER_BYTES", "FrameReader", "frame"]

HEADER_BYTES = 4
DEFAULT_LIMIT = 512 * 1024 * 1024
"""The largest body, in bytes, that is sent or believed unless a caller says otherwise."""


def frame(body: bytes, limit: int = DEFAULT_LIMIT) -> bytes:
    """`body` with its length before it.

    Raises:
        WireError: the body is longer than `limit` bytes; nothing of it should be sent.
    """
    if len(body) > limit:
        raise WireError(f"a message of {len(body)} bytes is over the limit of {limit} bytes")
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class FrameReader:
    """Cuts a byte stream, fed in pieces of any size, into the bodies of its frames."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies completed by `data`, in order.

        Raises:
            WireError: a header announces more than the limit; the stream cannot be read any further.
        """
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            body_start = start + HEADER_BYTES
            length = int.from_bytes(self._buffer[start:body_start], "little")
            if length > self._limit:
                raise WireError(
                    f"a frame announces {length} bytes, over the limit of {self._limit}: not a peer of ours"
                )
            if len(self._buffer) - body_start < length:
                break
            start = body_start + length
            bodies.append(bytes(memoryview(self._buffer)[body_start:start]))
        del self._buffer[:start]
        return bodies

    def finish(self) -> None:
        """The stream has ended.

        Raises:
            WireError: it ended inside a frame.
        """
        if self._buffer:
            raise WireError(f"the stream ended inside a frame, {len(self._buffer)} bytes after its start")
