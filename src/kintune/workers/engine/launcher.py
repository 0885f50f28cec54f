"""Starts processes, here or on other machines, and passes the messages of remote ones to the reactor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kintune.errors import WireError
from kintune.wire.channel import front_end_of_job, front_end_of_worker, tidy
from kintune.workers.engine.process import AnyCommand, Child, ChildProcess, Command
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.remote_process import ProcessHost, RemoteChild, Role

__all__ = ["Launcher"]


class Launcher:
    """Starts all processes of an engine."""

    def __init__(self, reactor: Reactor, log: ProcessLog, clock: Callable[[], float]) -> None:
        self._reactor = reactor
        self._log = log
        self._clock = clock
        self._hosts: dict[str, ProcessHost] = {}
        self._remote: dict[tuple[str, int], RemoteChild] = {}
        self._started = 0

    def start(self, name: str, command: AnyCommand, role: Role) -> Child:
        """Start a process and return it at once; `name` is its name in the log.

        A process of a node that is gone meanwhile ends at once.

        Raises:
            EngineError: a program of this machine cannot be started.
        """
        if isinstance(command, Command):
            return ChildProcess(name, command, front_end_of_job if role == "job" else front_end_of_worker, self._log)
        self._started += 1
        process = self._started
        host = self._hosts.get(command.node)
        child = RemoteChild(name, process, host or _NO_HOST, role, self._log)
        self._remote[command.node, process] = child
        if host is None:
            self._reactor.set_alarm(
                ("orphan", process), self._clock(), lambda: self.ended(command.node, process, "its node is gone")
            )
        else:
            self._log.write(name, f"started by {command.node}: {command.module} {' '.join(command.arguments)}")
            host.start(process, command)
        return child

    def add_host(self, node: str, host: ProcessHost) -> None:
        """Processes can be started on this node from now on."""
        self._hosts[node] = host

    def lose_host(self, node: str, cause: str) -> None:
        """All processes of this node are gone."""
        self._hosts.pop(node, None)
        for _, process in [key for key in self._remote if key[0] == node]:
            self.ended(node, process, cause)

    # what process hosts tell, in the engine's thread
    # ----------------------------------------------------------------------

    def heard(self, node: str, process: int, data: bytes) -> None:
        """A remote process has sent these bytes; those of a process that is not known (any more) are ignored."""
        child = self._remote.get((node, process))
        if child is None:
            return
        try:
            messages = child.understand(data)
        except WireError as error:
            del self._remote[node, process]
            self._reactor.end(child, child.kill(f"said what is no message: {error}"))
            return
        self._reactor.hear(child, messages)

    def printed(self, node: str, process: int, data: bytes) -> None:
        """A remote process has printed this."""
        child = self._remote.get((node, process))
        if child is not None:
            child.printed(data)

    def ended(self, node: str, process: int, how: str) -> None:
        """A remote process is gone."""
        child = self._remote.pop((node, process), None)
        if child is not None:
            how = tidy(how)
            child.ended(how)
            self._reactor.end(child, how)


class _NoHost:
    """Runs nothing: stands for a node that is gone."""

    def start(self, process: int, command: object) -> None:
        pass

    def say(self, process: int, data: bytes) -> None:
        pass

    def bring(self, process: int, paths: Sequence[str]) -> None:
        pass

    def kill(self, process: int) -> None:
        pass


_NO_HOST = _NoHost()
