"""A worker process without an engine: spoken to under deadlines, stopped and resumed with all its children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from kintune.core.messages import (
    Begin,
    FromJob,
    FromWorker,
    Hello,
    Item,
    ItemDone,
    ItemFailed,
    OfferStages,
    Open,
    Shutdown,
)
from kintune.errors import EngineError, InputError, WireError
from kintune.wire.channel import Channel, front_end_of_job, front_end_of_worker
from kintune.wire.child import FD_OPTION, ResourceLimits, describe_end

__all__ = ["Interview", "WorkerDied", "WorkerProcess", "WorkerRefused", "WorkerTimedOut", "interview"]


_GREETING_SECONDS = 120.0


_GONE_SECONDS = 5.0


_TAIL_BYTES = 2000


class WorkerDied(EngineError):
    """The process is gone, or took too long and was killed."""


class WorkerTimedOut(WorkerDied):
    """The process took too long and was killed."""


class WorkerRefused(EngineError):
    """The process answered that it could not do it; it can be asked for something else."""


class WorkerProcess:
    """A worker in a session of its own, whose process group can be stopped and killed as one.

    What it prints goes to `log`.  Errors name `name`.  Use as a context manager.
    """

    def __init__(self, name: str, arguments: tuple[str, ...], log: Path, environment: Mapping[str, str]) -> None:
        """Start `python -m` with `arguments`.

        The kernel kills it as soon as the thread that started it has ended (`kintune.wire.child`).
        """
        self.name = name
        self._log = log
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        self._socket = ours
        self._channel: Channel[FromWorker] = front_end_of_worker(ours)
        self._stage = ("", 0)
        self._items = 0

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def greet(self) -> Hello:
        """Wait until it is there; what it says of itself.  Raises EngineError when it does not come up."""
        match self._receive(time.monotonic() + _GREETING_SECONDS):
            case Hello() as hello:
                return hello
            case ItemFailed(cause=cause):
                raise WorkerRefused(f"{self.name}: {cause}")
            case other:
                raise WorkerDied(f"{self.name}: answered {type(other).__name__} before a greeting")

    def begin(self, kind: str, context: bytes) -> None:
        """The orders that follow belong to a stage of this kind and share this context."""
        self._stage = (kind, self._stage[1] + 1)
        self._send(Begin(*self._stage, kind, context))

    def order(self, payload: bytes, seconds: float) -> bytes:
        """Have one item done within `seconds`; its answer.

        Raises WorkerRefused when it could not be done, WorkerDied when the process is gone.
        """
        self._items += 1
        self._send(Item(*self._stage, self._items, payload))
        match self._receive(time.monotonic() + seconds):
            case ItemDone(index=index, payload=answer) if index == self._items:
                return answer
            case ItemFailed(cause=cause):
                raise WorkerRefused(f"{self.name}: {cause}")
            case other:
                raise WorkerDied(f"{self.name}: answered {type(other).__name__} to an order")

    def stop(self) -> None:
        """Stop all its threads and children, and return once its own have."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process and its children, whatever they are doing."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()

    def tail(self) -> str:
        """The end of what it printed."""
        try:
            return self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        except OSError:
            return ""

    def _send(self, message: msgspec.Struct) -> None:
        self._socket.settimeout(None)
        with contextlib.suppress(ConnectionError):  # that it is gone is seen when its answer is awaited
            self._channel.send(message)

    def _receive(self, deadline: float) -> Any:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            message = self._channel.recv()
        except TimeoutError:
            self.close()
            raise WorkerTimedOut(f"{self.name}: took too long and was killed; see {self._log}") from None
        except (WireError, ConnectionError):
            message = None
        if message is None:
            raise WorkerDied(f"{self.name}: {self._end()}; see {self._log}")
        return message

    def _end(self) -> str:
        try:
            code = self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        return describe_end(code)


_PATIENCE_S = 10.0  # for a process to leave once it was asked to

Answer = TypeVar("Answer")


class Interview:
    """A started process that has introduced itself; `about` is what its `Hello` said."""

    def __init__(self, name: str, channel: Channel[FromJob]) -> None:
        self._name = name
        self._channel = channel
        self.about = self._hear(Hello).about

    def ask(self, kind: str, context: bytes = b"", payload: bytes = b"") -> bytes:
        """Have it do one item of a stage.

        Raises InputError when it refuses what it was given, EngineError when it fails or dies.
        """
        self._channel.send(Begin(stage=kind, attempt=0, kind=kind, context=context))
        self._channel.send(Item(stage=kind, attempt=0, index=0, payload=payload))
        return self._hear(ItemDone).payload

    def first_work(self, job: str, spec: bytes) -> bytes:
        """Open a job, do the one item of the work that it offers first, and return the result.

        Raises as `ask` does.
        """
        self._channel.send(Open(job=job, spec=spec))
        (work, *_) = self._hear(OfferStages).works
        return self.ask(work.stage.kind, work.context, work.items[0])

    def _hear(self, kind: type[Answer]) -> Answer:
        """Wait for a message of this kind, past others that are only to be shown."""
        while (message := self._channel.recv()) is not None:
            if isinstance(message, kind):
                return message
            if isinstance(message, ItemFailed):
                raise (InputError if message.refused else EngineError)(message.cause)
        raise EngineError(f"{self._name} ended without an answer")


@contextmanager
def interview(
    module: str, arguments: Sequence[str] = (), threads: int = 1, limits: ResourceLimits | None = None
) -> Iterator[Interview]:
    """Start `python -m module` as a worker, and see it out at the end.

    `threads` is how many the compiler's runtime takes, unless the worker knows better; `limits` are laid on it.  Raises
    EngineError when the process dies, with the last line that it said; InputError when it refuses its arguments.
    """
    front, child = socket.socketpair()
    with front, child, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, FD_OPTION, str(child.fileno())],
            pass_fds=(child.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "TVM_NUM_THREADS": str(threads), **(limits.to_environment() if limits else {})},
        )
        child.close()
        channel = front_end_of_job(front)
        try:
            yield Interview(module, channel)
        except EngineError as error:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise EngineError(f"{error}; the last it said: {last[0]}" if last else str(error)) from error
        finally:
            with contextlib.suppress(OSError):
                channel.send(Shutdown())
            channel.close()
            _see_out(process)


def _see_out(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
