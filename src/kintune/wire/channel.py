"""Messages over a connected stream socket: frames, the decoders of each end, and the channel that both ends use.

Both ends use the same `Channel`.  A child blocks: `send` returns when the kernel has taken the whole message, `recv`
when a message has come.  The front must never block on a child, which may hang or may itself be blocked in a large
`send`: it uses `post`, `flush` and `receive`, which do what can be done at once, and waits in a selector between them.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Generic, TypeVar

import msgspec

from kintune.core.messages import FromJob, FromWorker, ToWorker
from kintune.errors import WireError

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_BYTES",
    "UNREADABLE",
    "Channel",
    "FrameReader",
    "MessageReader",
    "child_end",
    "encoded",
    "frame",
    "front_end_of_job",
    "front_end_of_worker",
    "reader_of_job",
    "reader_of_worker",
    "tidy",
]


Received = TypeVar("Received")

HEADER_BYTES = 4

DEFAULT_LIMIT = 512 * 1024 * 1024
"""The largest body, in bytes, that is sent or accepted unless a caller says otherwise."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding raises for bytes that are no message; msgspec does not convert the last two."""

_LONGEST = 400  # characters of a text from another process
_CHUNK = 1 << 18

_ENCODER = msgspec.msgpack.Encoder()
_TO_WORKER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ToWorker)
_FROM_WORKER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromWorker)
_FROM_JOB: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromJob)


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
        """Check, at the end of the stream, that nothing is left of a frame.

        Raises:
            WireError: the stream ended inside a frame.
        """
        if self._buffer:
            raise WireError(f"the stream ended inside a frame, {len(self._buffer)} bytes after its start")


def tidy(text: str) -> str:
    """Text from another process as one line of at most 400 printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class MessageReader(Generic[Received]):
    """Messages from a stream of bytes, fed in pieces of any size; `Received` is the type of the messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], limit: int = DEFAULT_LIMIT) -> None:
        self._decoder = decoder
        self._frames = FrameReader(limit)

    def feed(self, data: bytes) -> list[Received]:
        """The messages completed by `data`, bytes that came from the other end.

        Raises:
            WireError: the bytes are not messages that this end may receive, or one is over the limit.
        """
        return [self._decode(body) for body in self._frames.feed(data)]

    def finish(self) -> None:
        """Check, at the end of the stream, that nothing is left of a message.

        Raises:
            WireError: the stream ended inside a message.
        """
        self._frames.finish()

    def _decode(self, body: bytes) -> Received:
        try:
            message: Received = self._decoder.decode(body)
        except UNREADABLE as error:
            raise WireError(f"{len(body)} bytes that are not a message expected here: {error}") from error
        return message


def encoded(message: msgspec.Struct, limit: int = DEFAULT_LIMIT) -> bytes:
    """The bytes of a message on a stream.

    Raises:
        WireError: the message is over the limit; nothing of it should be sent.
    """
    return frame(_ENCODER.encode(message), limit)


class Channel(Generic[Received]):
    """One end of a connection; `Received` is the type of the messages that the other end may send.

    Not safe for use from several threads.  After a `WireError` while receiving, the start of the next message is not
    known, and the channel can only be closed.
    """

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[Any], limit: int = DEFAULT_LIMIT) -> None:
        self._sock = sock
        self._limit = limit
        self._reader: MessageReader[Received] = MessageReader(decoder, limit)
        self._inbox: deque[Received] = deque()
        self._outbox: deque[memoryview] = deque()

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._sock.fileno()

    def feed(self, data: bytes) -> list[Received]:
        """The messages completed by `data`, bytes that came from the other end.

        Raises:
            WireError: the bytes are not messages that this end may receive, or one is over the limit.
        """
        return self._reader.feed(data)

    # a child's end, blocking ----------------------------------------------------------------------------------------

    def send(self, message: msgspec.Struct) -> None:
        """Send `message`, waiting until the kernel has all of it.

        Raises:
            WireError: the message is over the limit; nothing was sent and the channel stays usable.
            OSError: the other end is gone.
        """
        self._sock.sendall(encoded(message, self._limit))

    def recv(self) -> Received | None:
        """The next message, waiting for it; None once the other end has closed.

        Raises:
            WireError: what came is not a message, or the stream ended inside one.
        """
        while not self._inbox:
            data = self._sock.recv(_CHUNK)
            if not data:
                self._reader.finish()
                return None
            self._inbox.extend(self.feed(data))
        return self._inbox.popleft()

    @property
    def has_more(self) -> bool:
        """Whether the next message is here already, so that `recv` would not wait."""
        return bool(self._inbox)

    # the front's end, never blocking --------------------------------------------------------------------------------

    def post(self, message: msgspec.Struct) -> None:
        """Queue `message` and send what the kernel takes now; `flush` sends the rest.

        Raises:
            WireError: the message is over the limit; it was not queued.
            OSError: the other end is gone.
        """
        self._outbox.append(memoryview(encoded(message, self._limit)))
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as the kernel takes now.

        Raises:
            OSError: the other end is gone.
        """
        while self._outbox:
            head = self._outbox[0]
            try:
                sent = self._sock.send(head, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if sent == len(head):
                self._outbox.popleft()
            else:
                self._outbox[0] = head[sent:]

    @property
    def unsent(self) -> bool:
        """Whether `flush` has something left to do once the socket is writable."""
        return bool(self._outbox)

    def receive(self) -> list[Received] | None:
        """The messages that one read completes (perhaps none); None once the other end has closed or was killed.

        A message cut short by the other end's death is dropped: it was never acknowledged.

        Raises:
            WireError: what came is not a message.
        """
        try:
            data = self._sock.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        return self.feed(data) if data else None

    def close(self) -> None:
        """Close the socket; the other end sees the end of the stream."""
        self._sock.close()


def child_end(sock: socket.socket, limit: int = DEFAULT_LIMIT) -> Channel[ToWorker]:
    """The end that a worker or a job process holds."""
    return Channel(sock, _TO_WORKER, limit)


def front_end_of_worker(sock: socket.socket, limit: int = DEFAULT_LIMIT) -> Channel[FromWorker]:
    """The front's end of a connection to a worker, which may not send the messages that only jobs send."""
    return Channel(sock, _FROM_WORKER, limit)


def front_end_of_job(sock: socket.socket, limit: int = DEFAULT_LIMIT) -> Channel[FromJob]:
    """The front's end of a connection to a job process."""
    return Channel(sock, _FROM_JOB, limit)


def reader_of_worker(limit: int = DEFAULT_LIMIT) -> MessageReader[FromWorker]:
    """Return a reader of a worker's messages whose bytes do not come over a socket of this process."""
    return MessageReader(_FROM_WORKER, limit)


def reader_of_job(limit: int = DEFAULT_LIMIT) -> MessageReader[FromJob]:
    """Return a reader of a job process's messages whose bytes do not come over a socket of this process."""
    return MessageReader(_FROM_JOB, limit)
