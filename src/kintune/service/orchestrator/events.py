"""The orchestrator's events, and the socket in the data directory over which they go out and pokes come in.

Events may be lost, since the database has the truth: a listener that falls too far behind is dropped, so that the
orchestrator never waits for one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from kintune.core.report import ProgressReport
from kintune.errors import InputError, StorageError, WireError
from kintune.scheduler.resources import Placement
from kintune.service.job_status import JobStatus
from kintune.wire.channel import FrameReader, frame

__all__ = [
    "Changed",
    "EventBus",
    "EventTally",
    "News",
    "Poke",
    "Progressed",
    "StageBegan",
    "StageEnded",
    "Standing",
    "Standings",
    "Starting",
    "decode_news",
    "encode",
]

_MOST_UNSENT = 4 << 20  # bytes that a listener may be behind
_MOST_HEARD = 64  # bytes of a poke
_LONGEST_PATH = 107  # bytes, of a socket
_log = logging.getLogger(__name__)


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """A job has come into another state."""

    job: str
    state: JobStatus
    reason: str = ""


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """Where a job's search stands."""

    job: str
    report: ProgressReport


class EventTally(msgspec.Struct, frozen=True):
    """How many candidates a stage has measured, and how many of them were disturbed and timed again."""

    measured: int = 0
    disturbed: int = 0

    def plus(self, other: EventTally) -> EventTally:
        """Returns the sum of both."""
        return EventTally(self.measured + other.measured, self.disturbed + other.disturbed)


class StageBegan(msgspec.Struct, frozen=True, tag="stage_began"):
    """A stage has its resources; `at` are seconds since 1970."""

    job: str
    stage: str
    kind: str
    placement: Placement
    at: float


class StageEnded(msgspec.Struct, frozen=True, tag="stage_ended"):
    """A stage has given its resources back."""

    job: str
    stage: str
    at: float
    tally: EventTally = EventTally()


class Standing(msgspec.Struct, frozen=True):
    """A host or a device: its type or its cores (`what`), and why nothing runs there ("" if it can), since when."""

    id: str
    kind: str
    what: str
    lost: str
    since: float


class Standings(msgspec.Struct, frozen=True, tag="standings"):
    """All hosts and devices as they are now; a new listener gets the latest first.  It is about no job."""

    resources: tuple[Standing, ...]
    job: str = ""


class Starting(msgspec.Struct, frozen=True, tag="starting"):
    """What the orchestrator waits for before it works on jobs, "" once it does; a new listener gets the latest first.

    It is about no job.
    """

    waits_for: str
    job: str = ""


News: TypeAlias = Changed | Progressed | StageBegan | StageEnded | Starting | Standings


class Poke(msgspec.Struct, frozen=True):
    """The one message to the orchestrator: something is new in the database."""


_decoder: msgspec.msgpack.Decoder[News] = msgspec.msgpack.Decoder(News)


def encode(news: News | Poke) -> bytes:
    """Returns an event or a poke as msgpack."""
    return msgspec.msgpack.encode(news)


def decode_news(data: bytes) -> News:
    """Returns the event that msgpack bytes hold.

    Raises:
        msgspec.MsgspecError: they hold none.
    """
    return _decoder.decode(data)


class EventBus:
    """The orchestrator's end of the socket, served by a thread of its own.

    `poked` is called in that thread for every poke that comes.  `publish` may be called from any thread and never
    waits.
    """

    def __init__(self, path: Path, poked: Callable[[], None]) -> None:
        """Makes the socket at `path` and starts the thread.

        Raises:
            InputError: the path is too long for a socket.
            StorageError: the socket cannot be made.
        """
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise InputError(f"{path}: is too long for the path of a socket; name a shorter data directory")
        self._path = path
        self._poked = poked
        self._lock = threading.Lock()
        self._unsent: dict[socket.socket, bytearray] = {}
        self._readers: dict[socket.socket, FrameReader] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._sleep = socket.socketpair()
        self._closed = False
        self._latest: dict[type, bytes] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            self._listener.bind(str(path))
            os.chmod(path, 0o600)
            self._listener.listen(16)
        except OSError as error:
            self._close_all()
            raise StorageError(f"{path}: cannot be made ({error.strerror})") from error
        for each in (self._listener, self._sleep, self._wake):
            each.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._sleep, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    def publish(self, news: News) -> None:
        """Sends an event to all listeners."""
        data = frame(encode(news))
        with self._lock:
            if isinstance(news, Standings | Starting):
                self._latest[type(news)] = data
            for connection, unsent in list(self._unsent.items()):
                unsent += data
                if len(unsent) > _MOST_UNSENT:
                    del self._unsent[connection]
        self._nudge()

    def close(self) -> None:
        """Closes all connections and removes the socket."""
        self._closed = True
        self._nudge()
        self._thread.join(timeout=5)
        self._path.unlink(missing_ok=True)

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def _run(self) -> None:
        while not self._closed:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._sleep:
                    with contextlib.suppress(BlockingIOError):
                        self._sleep.recv(4096)
                else:
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    if events & selectors.EVENT_READ:
                        self._read(connection)
            self._write_all()
        for connection in list(self._readers):
            self._drop(connection)
        self._close_all()

    def _close_all(self) -> None:
        for each in (self._listener, self._sleep, self._wake):
            each.close()
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self._readers[connection] = FrameReader(_MOST_HEARD)
            with self._lock:
                self._unsent[connection] = bytearray(b"".join(self._latest.values()))

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(4096)
            pokes = self._readers[connection].feed(data) if data else None
        except BlockingIOError:
            return
        except (OSError, WireError):
            pokes = None
        if pokes is None:
            self._drop(connection)
            return
        for _ in pokes:
            try:
                self._poked()
            except Exception:  # whatever it is, news are to go out and the next poke to come in
                _log.exception("a poke came to nothing")

    def _write_all(self) -> None:
        for connection in list(self._readers):
            with self._lock:
                unsent = self._unsent.get(connection)
                data = bytes(unsent) if unsent else b""
            if unsent is None:
                self._drop(connection)
                continue
            sent = 0
            if data:
                try:
                    sent = connection.send(data)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    self._drop(connection)
                    continue
            with self._lock:
                del unsent[:sent]
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
            self._selector.modify(connection, wanted)

    def _drop(self, connection: socket.socket) -> None:
        self._readers.pop(connection, None)
        with self._lock:
            self._unsent.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
