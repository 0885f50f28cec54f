"""A worker process that its caller drives without an engine: start, items with deadlines, stop, resume, end."""

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
from typing import TypeVar

import msgspec

from kintune.core.messages import (
    Begin,
    FromJob,
    Hello,
    Item,
    ItemDone,
    ItemFailed,
    OfferStages,
    Open,
    Progress,
    Shutdown,
)
from kintune.errors import EngineError, InputError, WireError
from kintune.wire.channel import Channel, front_end_of_job
from kintune.wire.child import FD_OPTION, ResourceLimits, describe_end, last_words
from kintune.wire.confinement import Confinement, start_of

__all__ = ["WorkerDied", "WorkerProcess", "WorkerRefused", "WorkerTimedOut", "interview"]

_HELLO_S = 120.0
_END_S = 5.0  # for a process that closed its channel to be gone
_LEAVE_S = 10.0  # for a process to leave once it was asked to
_TAIL_BYTES = 2000

_Answer = TypeVar("_Answer")


class WorkerDied(EngineError):
    """The process is gone, or took too long and was killed."""


class WorkerTimedOut(WorkerDied):
    """The process took too long and was killed."""


class WorkerRefused(EngineError):
    """The process could not do what it was asked; it can be asked for something else.

    `wrong_input` says that it was given something wrong: no retry can help.
    """

    def __init__(self, text: str, wrong_input: bool = False) -> None:
        self.wrong_input = wrong_input
        super().__init__(text)


class WorkerProcess:
    """A worker in a session of its own, whose process group can be stopped and killed as one.

    Errors begin with `name`, unless it is empty.  `about` is `Hello.about` after `greet`.  Use as a context manager.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str] = (),
        *,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        """Start `python -m module` with `arguments`; `environment` is laid over that of this process.

        With a `confinement`, it can do no more than that says.

        What it prints is appended to `log`, or dropped without one.  The kernel kills it as soon as the thread that
        started it has ended (`kintune.wire.child`).
        """
        self.name = name
        self.about = b""
        self._log = log
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", module, *arguments, FD_OPTION, str(theirs.fileno())]
        self._start = start_of(confinement, command, {**os.environ, **(environment or {})})
        with theirs, open(log or os.devnull, "ab") as output:
            self._process = subprocess.Popen(
                self._start.argv,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._start.environment,
            )
        self._socket = ours
        self._channel: Channel[FromJob] = front_end_of_job(ours)
        self._stage = ("", 0)
        self._items = 0
        self._closed = False

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._process.pid

    def greet(self, seconds: float | None = _HELLO_S) -> bytes:
        """Wait until it has started; returns `Hello.about`, its description of itself.

        Raises:
            WorkerRefused: it refuses its arguments.
            WorkerDied: it does not come up within `seconds`.
        """
        self.about = self._expect(Hello, seconds).about
        return self.about

    def begin(self, kind: str, context: bytes) -> None:
        """Begin a stage: the items that follow are of this kind and share this context."""
        self._stage = (kind, self._stage[1] + 1)
        self._send(Begin(*self._stage, kind, context))

    def order(self, payload: bytes, seconds: float | None = None) -> bytes:
        """Have one item done, within `seconds` if given; returns its result.

        Raises:
            WorkerRefused: it could not be done.
            WorkerDied: the process is gone, or took too long and was killed.
        """
        self._items += 1
        self._send(Item(*self._stage, self._items, payload))
        answer = self._expect(ItemDone, seconds)
        if answer.index != self._items:
            raise self._died("answered another item than the one it was given")
        return answer.payload

    def ask(self, kind: str, context: bytes = b"", payload: bytes = b"") -> bytes:
        """Run a stage of one item without a deadline, and return the result; raises as `order` does."""
        self.begin(kind, context)
        return self.order(payload)

    def first_work(self, job: str, spec: bytes) -> bytes:
        """Open a job, run the first item of the first work that it offers, and return the result.

        Raises as `order` does.
        """
        self._send(Open(job=job, spec=spec))
        (work, *_) = self._expect(OfferStages, None).works
        return self.ask(work.stage.kind, work.context, work.items[0])

    def stop(self) -> None:
        """Stop the process and its children; returns once the process has stopped.  Nothing is done if it has ended."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Ask it to leave, and end it if it does not.  Nothing is done if it was ended (`close`)."""
        if self._closed:
            return
        self._send(Shutdown())
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_S)
        self.close()

    def close(self) -> None:
        """End the process and its children, whatever they are doing."""
        if not self._closed:  # else the number may be that of others by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._closed = True
        self._process.wait()
        self._channel.close()
        self._start.clean()

    def tail(self) -> str:
        """Return the last 2000 bytes of its log; empty without one."""
        try:
            return self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") if self._log else ""
        except OSError:
            return ""

    def _send(self, message: msgspec.Struct) -> None:
        self._socket.settimeout(None)
        with contextlib.suppress(ConnectionError):  # that it is gone is seen when its answer is awaited
            self._channel.send(message)

    def _expect(self, kind: type[_Answer], seconds: float | None) -> _Answer:
        """Return the next message, which must be of this kind; progress reports are skipped."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while isinstance(message := self._receive(deadline), Progress):
            pass
        if isinstance(message, kind):
            return message
        if isinstance(message, ItemFailed):
            raise WorkerRefused(f"{self._prefix}{message.cause}", message.refused)
        raise self._died(f"answered {type(message).__name__}, not {kind.__name__}")

    def _receive(self, deadline: float | None) -> FromJob:
        self._socket.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
        try:
            message = self._channel.recv()
        except TimeoutError:
            self.close()
            raise self._died("took too long and was stopped", WorkerTimedOut) from None
        except (WireError, ConnectionError):
            message = None
        if message is None:
            raise self._died(self._end())
        return message

    def _died(self, how: str, kind: type[WorkerDied] = WorkerDied) -> WorkerDied:
        return kind(f"{self._prefix}{how}{f'; see {self._log}' if self._log else ''}")

    @property
    def _prefix(self) -> str:
        return f"{self.name}: " if self.name else ""

    def _end(self) -> str:
        """How the process ended."""
        try:
            return describe_end(self._start.end_code(self._process.wait(_END_S)))
        except subprocess.TimeoutExpired:
            return "closed its channel"


@contextmanager
def interview(
    module: str,
    arguments: Sequence[str] = (),
    threads: int = 1,
    limits: ResourceLimits | None = None,
    confinement: Confinement | None = None,
) -> Iterator[WorkerProcess]:
    """Start `python -m module` as a worker and greet it; at the end of the block it is asked to leave.

    `threads` is the number of threads of the compiler's runtime, unless the worker sets it; `limits` and
    `confinement` apply to the worker.

    Raises:
        InputError: the worker refuses its arguments, or an item.
        EngineError: the worker fails or dies; the message ends with the last line that it printed.
    """
    environment = {"TVM_NUM_THREADS": str(threads), **(limits.to_environment() if limits else {})}
    with tempfile.NamedTemporaryFile(prefix="kintune-worker-") as output:
        log = Path(output.name)
        worker = WorkerProcess("", module, arguments, log=log, environment=environment, confinement=confinement)
        try:
            worker.greet(None)
            yield worker
        except EngineError as error:
            if isinstance(error, WorkerRefused) and error.wrong_input:
                raise InputError(str(error)) from error
            words, place = last_words(worker.tail())
            what = f"{module} ended without an answer{place}" if isinstance(error, WorkerDied) else str(error)
            last = words.splitlines()[-1:]
            raise EngineError(f"{what}; the last it said: {last[0]}" if last else what) from error
        finally:
            worker.leave()
