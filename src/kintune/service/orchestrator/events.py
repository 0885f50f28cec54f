"""The orchestrator's events, and the socket in the data directory over which they go out and pokes come in.

Events may be lost, since the database has the truth: a listener that falls too far behind is dropped, so that the
orchestrator never waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
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
    """The orchestrator's end of the socket, served by an event loop in a thread of its own.

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
        self._listeners: set[asyncio.StreamWriter] = set()
        self._latest: dict[type, bytes] = {}
        self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            self._socket.bind(str(path))
            os.chmod(path, 0o600)
            self._socket.listen(16)
        except OSError as error:
            self._socket.close()
            self._loop.close()
            raise StorageError(f"{path}: cannot be made ({error.strerror})") from error
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    def publish(self, news: News) -> None:
        """Sends an event to all listeners."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._send, news)

    def close(self) -> None:
        """Closes all connections and removes the socket."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(timeout=5)
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve_until_closed())
        self._loop.close()

    async def _serve_until_closed(self) -> None:
        server = await asyncio.start_unix_server(self._serve, sock=self._socket)
        await self._closed.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # they close their connections
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _send(self, news: News) -> None:
        data = frame(encode(news))
        if isinstance(news, Standings | Starting):
            self._latest[type(news)] = data
        for writer in self._listeners:
            if writer.transport.get_write_buffer_size() > _MOST_UNSENT:
                writer.transport.abort()
            else:
                writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(_MOST_HEARD)
        self._listeners.add(writer)
        try:
            writer.write(b"".join(self._latest.values()))
            while data := await reader.read(4096):
                for _ in frames.feed(data):
                    self._hear()
        except (OSError, WireError, asyncio.CancelledError):
            pass
        finally:
            self._listeners.remove(writer)
            writer.transport.abort()

    def _hear(self) -> None:
        try:
            self._poked()
        except Exception:  # whatever it is, news are to go out and the next poke to come in
            _log.exception("a poke came to nothing")
