"""Starts processes, here or through keepers, and tells the reactor what those that are kept elsewhere say."""

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
    """All processes of an engine come from here."""

    def __init__(self, reactor: Reactor, log: ProcessLog, clock: Callable[[], float]) -> None:
        self._reactor = reactor
        self._log = log
        self._clock = clock
        self._keepers: dict[str, ProcessHost] = {}
        self._kept: dict[tuple[str, int], RemoteChild] = {}
        self._started = 0

    def start(self, name: str, command: AnyCommand, role: Role) -> Child:
        """A process that is being started; `name` is how the log calls it.

        Where its keeper is gone meanwhile, it ends at once.  Raises EngineError when a program of this machine cannot
        be started.
        """
        if isinstance(command, Command):
            return ChildProcess(name, command, front_end_of_job if role == "job" else front_end_of_worker, self._log)
        self._started += 1
        process = self._started
        keeper = self._keepers.get(command.keeper)
        child = RemoteChild(name, process, keeper or _NOBODY, role, self._log)
        self._kept[command.keeper, process] = child
        if keeper is None:
            self._reactor.set_alarm(
                ("orphan", process), self._clock(), lambda: self.ended(command.keeper, process, "its keeper is gone")
            )
        else:
            self._log.write(name, f"started by {command.keeper}: {command.module} {' '.join(command.arguments)}")
            keeper.start(process, command)
        return child

    def add_keeper(self, name: str, keeper: ProcessHost) -> None:
        """Processes can be kept there from now on."""
        self._keepers[name] = keeper

    def lose_keeper(self, name: str, cause: str) -> None:
        """All that was kept there is gone."""
        self._keepers.pop(name, None)
        for keeper, process in [key for key in self._kept if key[0] == name]:
            self.ended(keeper, process, cause)

    # what keepers tell, in the engine's thread ----------------------------------------------------------------------

    def heard(self, keeper: str, process: int, data: bytes) -> None:
        """A kept process says this; one that is not known (any more) is not listened to."""
        child = self._kept.get((keeper, process))
        if child is None:
            return
        try:
            messages = child.understand(data)
        except WireError as error:
            del self._kept[keeper, process]
            self._reactor.end(child, child.kill(f"said what is no message: {error}"))
            return
        self._reactor.hear(child, messages)

    def printed(self, keeper: str, process: int, data: bytes) -> None:
        """A kept process has printed this."""
        child = self._kept.get((keeper, process))
        if child is not None:
            child.printed(data)

    def ended(self, keeper: str, process: int, how: str) -> None:
        """A kept process is gone."""
        child = self._kept.pop((keeper, process), None)
        if child is not None:
            how = tidy(how)
            child.ended(how)
            self._reactor.end(child, how)


class _Nobody:
    """Keeps nothing."""

    def start(self, process: int, command: object) -> None:
        pass

    def say(self, process: int, data: bytes) -> None:
        pass

    def bring(self, process: int, paths: Sequence[str]) -> None:
        pass

    def kill(self, process: int) -> None:
        pass


_NOBODY = _Nobody()
