"""A child process of the engine: its channel, its output, its end; and how processes are started.

`kintune.wire.worker_client` blocks on one process under a deadline.  Here a reactor waits for all processes at once,
and nothing may block.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from kintune.core.messages import FromJob, FromWorker
from kintune.errors import EngineError
from kintune.wire.channel import Channel
from kintune.wire.child import FD_OPTION, ResourceLimits, describe_end
from kintune.wire.confinement import Confinement, start_of
from kintune.workers.engine.process_log import ProcessLog, Tail

__all__ = ["AnyCommand", "Anywhere", "Child", "ChildProcess", "Command", "FrontEnd", "RemoteCommand"]


FrontEnd: TypeAlias = Channel[FromWorker] | Channel[FromJob]

URGENT_OPTION = "--urgent"
"""The option of a device worker that has real-time priority while it times candidates."""

_CHUNK = 1 << 16


_LAST_PARTS = 16  # chunks: no less than a pipe holds


_GRACE_S = 2.0


_END_S = 10.0  # to wait for a process that was killed: a driver, or a file system, may keep it


class ChildProcess:
    """A process of this machine, in a session of its own: Ctrl-C does not reach it, and its children die with it.

    Implements `kintune.workers.engine.process.Child`.
    """

    def __init__(
        self, name: str, command: Command, front_end: Callable[[socket.socket], FrontEnd], log: ProcessLog
    ) -> None:
        """Start it.

        Args:
            name: how the log calls it.
            command: the program.
            front_end: makes the front's end of the channel.
            log: takes its output.

        Raises:
            EngineError: the program cannot be started.
        """
        self.name = name
        self._log = log
        self._tail = Tail(name, log)
        front, child = socket.socketpair()
        with child:
            argv = [*command.argv, FD_OPTION, str(child.fileno())]
            try:
                self._start = start_of(command.confinement, argv, command.full_environment())
            except OSError as error:
                front.close()
                raise EngineError(f"{name}: no place for its files: {error.strerror}") from error
            try:
                self._popen = subprocess.Popen(
                    self._start.argv,
                    pass_fds=(child.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=self._start.environment,
                )
            except OSError as error:
                front.close()
                self._start.clean()
                raise EngineError(f"{name}: cannot start {command.argv[0]!r}: {error.strerror}") from error
        assert self._popen.stdout is not None
        self._output = self._popen.stdout
        os.set_blocking(self._output.fileno(), False)
        self.channel = front_end(front)
        log.write(name, f"started as process {self.pid}: {' '.join(command.argv)}")

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._popen.pid

    @property
    def output_fileno(self) -> int:
        """The descriptor from which its output comes."""
        return self._output.fileno()

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return self._tail.text

    def pass_output_on(self) -> bool:
        """Log one chunk of what it has printed, if there is any; returns False at the end of its output."""
        try:
            data = os.read(self._output.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        self._tail.feed(data)
        return bool(data)

    def post(self, message: msgspec.Struct) -> None:
        """See `kintune.workers.engine.process.Child`; what the kernel does not take now waits in the channel."""
        self.channel.post(message)

    def bring(self, paths: Sequence[str]) -> None:
        """See `kintune.workers.engine.process.Child`; a process of this machine finds them where they are."""

    def reap(self) -> str:
        """Wait for the end of the process, which has closed its channel; returns how it ended."""
        try:
            self._popen.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return self.kill("closed its channel and hung")
        return self.kill()

    def kill(self, how: str = "") -> str:
        """Kill it with its children, at once; returns `how`, or else how it ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            code = self._popen.wait(_END_S)
            how = how or describe_end(self._start.end_code(code))
        except subprocess.TimeoutExpired:
            how = f"{how or 'killed'}, and has not ended"
        if not self._output.closed:
            self._pass_the_rest_on()
            self._tail.finish()
            self._output.close()
        self.channel.close()
        self._start.clean()
        self._log.write(self.name, how)
        return how

    def _pass_the_rest_on(self) -> None:
        """Log what the pipe still holds, and no more: a descendant outside of the process group may print for ever."""
        for _ in range(_LAST_PARTS):
            if not self.pass_output_on():
                return


class Child(Protocol):
    """One process of the engine; `name` is its name in the log."""

    name: str

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        ...

    def post(self, message: msgspec.Struct) -> None:
        """Send without waiting.

        Raises:
            WireError: the message is over the limit; nothing of it was sent.
            OSError: the process is gone.
        """
        ...

    def bring(self, paths: Sequence[str]) -> None:
        """Make these files of the front available to it; it needs none of those brought before any more."""
        ...

    def kill(self, how: str = "") -> str:
        """Kill it with its children, at once; returns `how`, or else how it ended."""
        ...


class Command(msgspec.Struct, frozen=True):
    """A program that talks to the front: the engine appends `--fd N` to `argv`.

    `environment` is laid over that of the front.  The process applies `limits` to itself before anything else.  With a
    `confinement`, which is for our own programs, it can do no more than that says.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()
    confinement: Confinement | None = None
    outside: bool = False  # it cannot be confined, since it needs files of a driver

    def confined_to(self, confinement: Confinement) -> Command:
        """Return the same command in this confinement; one that must stay outside is returned as it is."""
        if self.outside:
            return self
        return msgspec.structs.replace(
            self, confinement=msgspec.structs.replace(confinement, realtime=URGENT_OPTION in self.argv)
        )

    def full_environment(self) -> dict[str, str]:
        """The whole environment of the process."""
        return {**os.environ, **self.environment, **self.limits.to_environment()}


class RemoteCommand(msgspec.Struct, frozen=True):
    """One of our programs, to be started elsewhere, on the node of this name: `python -m module arguments`.

    Files that it makes are copied to the front if their paths begin with `collect`.
    """

    node: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()
    collect: str = ""


class Anywhere(msgspec.Struct, frozen=True):
    """One of our programs, to be started on whichever host elsewhere has most room for it."""

    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()

    def at(self, node: str) -> RemoteCommand:
        """Return the same command for the node of this name."""
        return RemoteCommand(node, self.module, self.arguments, self.environment, self.limits)


AnyCommand: TypeAlias = Command | RemoteCommand
"""How a process is started."""
