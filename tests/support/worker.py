"""Fixture: real worker processes and our end of their channels."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kintune.core.messages import Begin, FromWorker, Hello, Item, ItemDone, Shutdown
from kintune.wire.channel import front_end_of_worker


class Worker:
    """A real worker process and our end of its channel."""

    _stages = itertools.count()

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "--fd", str(theirs.fileno()), *arguments],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "TVM_NUM_THREADS": "1", **environment},
            )
        self.channel = front_end_of_worker(ours)
        self.stage = ""
        self.first = self.channel.recv()

    @property
    def hello(self) -> Hello:
        assert isinstance(self.first, Hello)
        return self.first

    def begin(self, kind: str, context: bytes) -> None:
        self.stage = f"{kind}-{next(self._stages)}"
        self.channel.send(Begin(self.stage, 0, kind, context))

    def send(self, payload: bytes) -> None:
        self.channel.send(Item(self.stage, 0, 0, payload))

    def ask(self, payload: bytes) -> FromWorker | None:
        """The answer to one item; None when the process died instead."""
        self.send(payload)
        try:
            return self.channel.recv()
        except ConnectionError:
            return None

    def done(self, payload: bytes) -> bytes:
        answer = self.ask(payload)
        assert isinstance(answer, ItemDone), answer
        return answer.payload

    def close(self) -> int:
        if self.process.poll() is None:
            with contextlib.suppress(ConnectionError):
                self.channel.send(Shutdown())
        self.channel.close()
        return self.process.wait()


@pytest.fixture(scope="module")
def start_worker() -> Iterator[Callable[..., Worker]]:
    """Starts worker processes, by module, arguments and environment; ends what is left of them afterwards."""
    started: list[Worker] = []

    def start(module: str, *arguments: str, **environment: str) -> Worker:
        started.append(Worker(module, *arguments, **environment))
        return started[-1]

    yield start
    for worker in started:
        worker.channel.close()
        worker.process.kill()
        worker.process.wait()
