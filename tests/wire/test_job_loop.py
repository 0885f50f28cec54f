from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

import msgspec

from kintune.core.messages import Accept, Committed, Hello, ItemStatus, Progress, Shutdown, StageClosed, ToWorker
from kintune.wire.channel import Channel, frame, front_end_of_job
from kintune.wire.job_loop import JOB_WORKER, Saying, serve_job
from kintune.wire.worker_loop import hello


class Counter:
    """A job that counts the events it is told, and shows the count when it is worth it."""

    def __init__(self) -> None:
        self.told = 0

    def begin(self, kind: str, context: bytes) -> None:
        raise NotImplementedError

    def item(self, payload: bytes) -> bytes:
        raise NotImplementedError

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        raise NotImplementedError

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        self.told += 1
        return () if more else (Progress(b"%d" % self.told),)

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        raise NotImplementedError

    def stop(self, reason: str) -> Iterable[Saying]:
        raise NotImplementedError


class Fed(Channel[ToWorker]):
    """A child's end to which each part comes in one piece, once what came before was read."""

    def __init__(self, front: socket.socket, child: socket.socket, parts: Iterable[Sequence[ToWorker]]) -> None:
        super().__init__(child, msgspec.msgpack.Decoder(ToWorker))
        self._front = front
        self._parts = iter(parts)

    def recv(self) -> ToWorker | None:
        if not self.has_more and (part := next(self._parts, None)) is not None:
            self._front.sendall(b"".join(frame(msgspec.msgpack.encode(message)) for message in part))
        return super().recv()


def shown(*parts: Sequence[ToWorker]) -> list[bytes]:
    """What the job shows when these messages come."""
    front, child = socket.socketpair()
    with front, child:
        channel = front_end_of_job(front)
        serve_job(Fed(front, child, parts), hello(JOB_WORKER), Counter())
        child.close()
        said = []
        while (message := channel.recv()) is not None:
            said.append(message)
    assert isinstance(said[0], Hello)
    return [message.payload for message in said[1:] if isinstance(message, Progress)]


def event(number: int) -> Accept:
    return Accept(Committed(number, 0.0, "s", 0, "k", number, ItemStatus.OK, b"", ""))


def test_of_events_that_come_together_the_last_one_is_shown() -> None:
    together = [event(n) for n in range(5)]
    assert shown(together, [event(5)], [event(6), event(7)], [Shutdown()]) == [b"5", b"6", b"8"]
