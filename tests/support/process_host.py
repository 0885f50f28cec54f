"""A process host for tests: it runs processes on this machine, as an agent does on another."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import RemoteCommand
from kintune.workers.fleet.content_cache import ContentCache, FileDigests
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.file_transfer import with_token
from kintune.workers.fleet.messages import Launch, Made, Need, Want
from kintune.workers.fleet.process_supervisor import ProcessSupervisor

__all__ = ["LocalProcessHost"]


class LocalProcessHost:
    """Implements `kintune.workers.engine.remote_process.ProcessHost` by a supervisor in its own thread, until `close`.

    While it is `deaf`, no message, output or end of its processes is passed on.
    """

    def __init__(self, name: str, engine: LocalEngine, programs: Collection[str]) -> None:
        self.name = name
        self.deaf = False
        self._engine = engine
        self._loop = asyncio.new_event_loop()
        self._digests = FileDigests()
        fetcher = FileFetcher(ContentCache(Path(tempfile.gettempdir())), _refuse)
        self._supervisor = ProcessSupervisor(self, fetcher, programs)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, process: int, command: RemoteCommand) -> None:
        """See `ProcessHost`."""
        environment = dict(command.environment)
        collect = with_token(command.collect) if command.collect else None
        launch = Launch(process, command.module, command.arguments, environment, command.limits, collect)
        self._loop.call_soon_threadsafe(self._supervisor.start, launch)

    def say(self, process: int, data: bytes) -> None:
        """See `ProcessHost`."""
        self._loop.call_soon_threadsafe(self._supervisor.say, process, data)

    def bring(self, process: int, paths: Sequence[str]) -> None:
        """See `ProcessHost`."""
        self._loop.call_soon_threadsafe(self._supervisor.clear, process)
        for path in paths:
            with contextlib.suppress(OSError):
                need = Need(process, path, *self._digests.of(path))
                self._loop.call_soon_threadsafe(self._supervisor.need, need)

    def kill(self, process: int) -> None:
        """See `ProcessHost`."""
        self._loop.call_soon_threadsafe(self._supervisor.kill, process)

    def heard(self, process: int, data: bytes) -> None:
        """See `kintune.workers.fleet.process_supervisor.ProcessListener`."""
        if not self.deaf:
            self._engine.heard(self.name, process, data)

    def printed(self, process: int, data: bytes) -> None:
        """See `ProcessListener`."""
        if not self.deaf:
            self._engine.printed(self.name, process, data)

    def made(self, process: int, parts: Iterator[Made]) -> None:
        """See `ProcessListener`: this host and its front have one file system."""

    def ended(self, process: int, how: str) -> None:
        """See `ProcessListener`."""
        if not self.deaf:
            self._engine.ended(self.name, process, how)

    def close(self) -> None:
        """Kill its processes, and end the thread."""
        self.deaf = True
        asyncio.run_coroutine_threadsafe(self._supervisor.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _refuse(want: Want) -> None:
    raise AssertionError(f"{want} is to be found where it is")
