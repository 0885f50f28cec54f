"""Processes that this machine runs for a front elsewhere: started, spoken to, listened to, killed.

What a process says and prints is passed on as bytes; only the front knows what it means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Protocol

from kintune.errors import InputError
from kintune.wire.child import FD_OPTION, describe_end
from kintune.wire.staging import MADE_VARIABLE, STAGING_VARIABLE
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.file_transfer import StagingDirectory, sees
from kintune.workers.fleet.messages import Launch, Made, Need

__all__ = ["PROGRAMS", "ProcessListener", "ProcessSupervisor"]

PROGRAMS = frozenset(
    {
        "kintune.tuning.job.process",
        "kintune.transfer.refresh_job",
        "kintune.workers.build_worker",
        "kintune.workers.device_worker",
    }
)
"""What a front may have started here: our programs, and nothing else."""

_VARIABLES = frozenset({"OMP_NUM_THREADS", "TVM_NUM_THREADS"})  # the environment variables that a front may set
_CHUNK = 1 << 18
_PASSED_ON = 1 << 23  # bytes of what one process prints; a line has more to carry
_LAST = 1 << 14
_GRACE_S = 2.0
_END_S = 30.0  # for which a process that was killed is waited for: the kernel may keep it


class ProcessListener(Protocol):
    """Callbacks for what processes do, in the thread of the event loop."""

    def heard(self, process: int, data: bytes) -> None:
        """The process says this to the front."""

    def printed(self, process: int, data: bytes) -> None:
        """The process has printed this."""

    def made(self, process: int, parts: Iterator[Made]) -> None:
        """The process may have made files for the front, whose parts are read as they are taken."""

    def ended(self, process: int, how: str) -> None:
        """The process has ended, or could not be started; nothing more is told of it."""


class ProcessSupervisor:
    """Runs processes by the numbers that the front gives them.  Belongs to one running event loop."""

    def __init__(self, listener: ProcessListener, fetcher: FileFetcher, programs: Collection[str] = PROGRAMS) -> None:
        """`fetcher` gets the files that processes need."""
        self._listener = listener
        self._fetcher = fetcher
        self._programs = programs
        self._members: dict[int, _Member] = {}
        self._lives: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._members)

    def start(self, launch: Launch) -> None:
        """Start a process; if it cannot be started, the listener is told that it ended."""
        try:
            staging = StagingDirectory(self._fetcher.directory)
        except OSError as error:
            self._listener.ended(launch.process, f"no place for its files: {error.strerror}")
            return
        member = self._members[launch.process] = _Member(staging)
        life = asyncio.ensure_future(self._live(launch, member))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    def say(self, process: int, data: bytes) -> None:
        """Pass bytes of the front on to a process, unless it is gone."""
        member = self._members.get(process)
        if member is not None:
            member.say(data)

    def need(self, need: Need) -> None:
        """Place a file that a process needs before it is told anything more; if that fails, the process is killed."""
        member = self._members.get(need.process)
        if member is not None:
            member.wait()
            placing = asyncio.ensure_future(self._place(need, member))
            self._lives.add(placing)
            placing.add_done_callback(self._lives.discard)

    async def _place(self, need: Need, member: _Member) -> None:
        try:
            await self._fetcher.place(need, member.staging)
        except InputError as error:
            member.kill(str(error))
        finally:
            member.go_on()

    def clear(self, process: int) -> None:
        """A process needs no file that was brought so far."""
        member = self._members.get(process)
        if member is not None:
            try:
                member.staging.empty()
            except OSError as error:
                member.kill(f"no place for its files: {error.strerror}")

    def kill(self, process: int) -> None:
        """Kill a process with its children."""
        member = self._members.get(process)
        if member is not None:
            member.kill("killed")

    async def close(self) -> None:
        """Kill all, and see that they are gone."""
        self._fetcher.close()
        for member in self._members.values():
            member.kill("killed")
        await asyncio.gather(*self._lives, return_exceptions=True)

    async def _live(self, launch: Launch, member: _Member) -> None:
        how = f"{launch.module} is none of the programs that can be started here"
        try:
            if launch.module in self._programs:
                how = await self._from_start_to_end(launch, member)
        except (OSError, ValueError) as error:  # an argument may hold a null character
            how = f"cannot be started: {error}"
        finally:
            del self._members[launch.process]
            member.staging.remove()
        self._listener.ended(launch.process, how)

    async def _from_start_to_end(self, launch: Launch, member: _Member) -> str:
        apart = launch.collect is not None and not sees(launch.collect)

        def heard(data: bytes) -> None:
            if apart:  # what it has made goes before what it says of it
                self._listener.made(launch.process, member.staging.parts_made(launch.process))
            self._listener.heard(launch.process, data)

        ours, theirs = socket.socketpair()
        with theirs:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", launch.module, *launch.arguments, FD_OPTION, str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    **{name: value for name, value in launch.environment.items() if name in _VARIABLES},
                    **launch.limits.to_environment(),
                    STAGING_VARIABLE: str(member.staging.path),
                    **({MADE_VARIABLE: str(member.staging.made)} if apart else {}),
                },
            )  # fmt: skip
        assert child.stdout is not None
        reader, writer = await asyncio.open_connection(sock=ours)
        member.begin(child, writer)
        output = _Output(lambda data: self._listener.printed(launch.process, data))
        printing = asyncio.ensure_future(_pump(child.stdout, output.feed))
        try:
            await _pump(reader, heard)
            await _within(_GRACE_S, child.wait())
            if child.returncode is None:
                member.kill("closed its channel and hung")
            member.kill()  # its children
            await _within(_END_S, child.wait())
            await _within(_GRACE_S, printing)  # who has left its group may never close what it prints to
            output.finish()
        finally:
            printing.cancel()
            member.end()
            writer.close()
        return member.how or describe_end(-signal.SIGKILL if child.returncode is None else child.returncode)


class _Member:
    """One process; what is said to it before it is there waits."""

    def __init__(self, staging: StagingDirectory) -> None:
        self.how = ""
        self.staging = staging
        self._child: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []
        self._missing = 0  # files

    def begin(self, child: asyncio.subprocess.Process, writer: asyncio.StreamWriter) -> None:
        self._child, self._writer = child, writer
        if self.how:
            self.kill()
        self._pass_on()

    def wait(self) -> None:
        """What is said from now on waits for a file."""
        self._missing += 1

    def go_on(self) -> None:
        """A file is there, or will not come."""
        self._missing -= 1
        self._pass_on()

    def say(self, data: bytes) -> None:
        self._waiting.append(data)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._writer is None or self._missing:
            return
        if not self._writer.is_closing():
            for data in self._waiting:
                self._writer.write(data)
        self._waiting.clear()

    def kill(self, how: str = "") -> None:
        self.how = self.how or how
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def end(self) -> None:
        """The process has ended: its number may soon be that of another process, which must not be killed."""
        self._child = None


class _Output:
    """What a process prints, passed on; once that was too much, its last words only."""

    def __init__(self, told: Callable[[bytes], None]) -> None:
        self._told = told
        self._share = _PASSED_ON
        self._last = b""

    def feed(self, data: bytes) -> None:
        if self._share > 0:
            self._share -= len(data)
            self._told(data)
        else:
            self._last = (self._last + data)[-_LAST:]

    def finish(self) -> None:
        if self._last:
            self._told(self._last)


async def _within(seconds: float, what: Awaitable[object]) -> None:
    """Wait for `what`, but no longer than this."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(what, seconds)


async def _pump(reader: asyncio.StreamReader, told: Callable[[bytes], None]) -> None:
    """Call `told` with the data that arrive, until the stream ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            told(data)
