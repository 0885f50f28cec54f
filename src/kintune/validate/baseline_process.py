"""The proof's end of a contender's process: start it, give it orders under deadlines, stop it between its turns.

Why a process each, stopped by the kernel when it is not its turn: thread pools spin between runs, some for
milliseconds and some for good, and would take the cores from whoever runs next; see docs/design/proof.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

import msgspec

from kintune.core.messages import Begin, FromWorker, Hello, Item, ItemDone, ItemFailed
from kintune.errors import EngineError, WireError
from kintune.validate.baseline_protocol import (
    CONTEST,
    BaselineContext,
    BaselineTimes,
    BaselineTurn,
    Order,
    PrepareBaseline,
)
from kintune.wire.channel import Channel, front_end_of_worker
from kintune.wire.child import describe_end

__all__ = ["BaselineProcess"]

_GONE_SECONDS = 5.0  # how long a process that closed its channel may take to be gone


class BaselineProcess:
    """One runtime in a process of its own, which is stopped except during `prepare` and `turn`.

    Each raises EngineError, with the reason in a few words, when the contender cannot go on: it cannot run the network,
    failed, died, or took too long.  It can only be closed then.  Use as a context manager.
    """

    def __init__(self, name: str, contest: BaselineContext) -> None:
        self.name = name
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._channel: Channel[FromWorker] = front_end_of_worker(ours)
        threads = str(contest.threads)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kintune.validate.baseline_worker", "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            )
        self._contest = contest
        self._orders = 0

    def __enter__(self) -> BaselineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        """Load and compile the network within `seconds`."""
        deadline = time.monotonic() + seconds
        if not isinstance(greeting := self._receive(deadline), Hello):
            raise EngineError(f"answered {type(greeting).__name__} before a greeting")
        self._send(Begin(CONTEST, 0, CONTEST, msgspec.msgpack.encode(self._contest)))
        self._order(PrepareBaseline(), deadline)
        self._stop()

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Take a turn within `seconds`; the times of its timed runs in milliseconds."""
        self._process.send_signal(signal.SIGCONT)
        answer = self._order(turn, time.monotonic() + seconds)
        self._stop()
        return msgspec.msgpack.decode(answer, type=BaselineTimes).times_ms

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._channel.close()

    def _order(self, order: Order, deadline: float) -> bytes:
        self._orders += 1
        self._send(Item(CONTEST, 0, self._orders, msgspec.msgpack.encode(order)))
        match self._receive(deadline):
            case ItemDone(index=index, payload=payload) if index == self._orders:
                return payload
            case ItemFailed(cause=cause):
                raise EngineError(cause)
            case other:
                raise EngineError(f"answered {type(other).__name__} to an order")

    def _send(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(ConnectionError):  # that it is gone is seen when its answer is awaited
            self._channel.send(message)

    def _receive(self, deadline: float) -> Any:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            message = self._channel.recv()
        except TimeoutError:
            raise EngineError("took too long and was stopped") from None
        except (WireError, ConnectionError):
            message = None
        if message is None:
            raise EngineError(self._end())
        return message

    def _stop(self) -> None:
        """Stop all its threads, and return once they have."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _end(self) -> str:
        """How the process ended."""
        try:
            code = self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        return describe_end(code)
