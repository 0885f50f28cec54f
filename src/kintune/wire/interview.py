"""One process asked a few questions, one after the other: what needs no engine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from kintune.core.messages import Begin, FromJob, Hello, Item, ItemDone, ItemFailed, Offer, Open, Shutdown
from kintune.errors import EngineError, InputError
from kintune.wire.channel import Channel, front_end_of_job
from kintune.wire.child import FD_OPTION, ResourceLimits

__all__ = ["Interview", "interview"]

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
        (work, *_) = self._hear(Offer).works
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
