"""A process elsewhere: on another host, on a board, on a node of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from kintune.core.messages import FromJob
from kintune.wire.channel import encoded, reader_of_job, reader_of_worker
from kintune.workers.engine.process import RemoteCommand
from kintune.workers.engine.process_log import ProcessLog, Tail

__all__ = ["ProcessHost", "RemoteChild", "Role"]

Role: TypeAlias = Literal["worker", "job"]
"""What a process is for, which decides what messages it may send."""


class ProcessHost(Protocol):
    """Runs processes elsewhere, and passes on what they say.  Its methods return at once; results are reported later.

    `process` is the number that the engine gives a process; none is used twice.
    """

    def start(self, process: int, command: RemoteCommand) -> None:
        """Start it.  A process that cannot be started has ended."""
        ...

    def say(self, process: int, data: bytes) -> None:
        """Pass these bytes of a stream of messages on to it."""
        ...

    def bring(self, process: int, paths: Sequence[str]) -> None:
        """Put these files of the front where it finds them (`kintune.wire.staging`), before what is said to it next.

        It needs none of those brought before any more.
        """
        ...

    def kill(self, process: int) -> None:
        """Kill it with its children; one that is gone is left alone."""
        ...


class RemoteChild:
    """Implements `kintune.workers.engine.process.Child`."""

    def __init__(self, name: str, process: int, host: ProcessHost, role: Role, log: ProcessLog) -> None:
        """`name` is the process's name in the log; the caller starts it."""
        self.name = name
        self.process = process
        self._host = host
        self._reader = reader_of_job() if role == "job" else reader_of_worker()
        self._log = log
        self._tail = Tail(name, log)

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return self._tail.text

    def post(self, message: msgspec.Struct) -> None:
        """See `Child`."""
        self._host.say(self.process, encoded(message))

    def bring(self, paths: Sequence[str]) -> None:
        """See `Child`."""
        self._host.bring(self.process, paths)

    def kill(self, how: str = "") -> str:
        """See `Child`."""
        self._host.kill(self.process)
        how = how or "killed"
        self._log.write(self.name, how)
        return how

    def understand(self, data: bytes) -> list[FromJob]:
        """Returns the messages that are complete with these bytes.

        Raises:
            WireError: they are no messages of a process of its role.
        """
        return [*self._reader.feed(data)]

    def printed(self, data: bytes) -> None:
        """The process has printed this."""
        self._tail.feed(data)

    def ended(self, how: str) -> None:
        """The process has ended."""
        self._tail.finish()
        self._log.write(self.name, how)
