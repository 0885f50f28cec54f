from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kintune.core.messages import Begin, FromWorker, Hello, Item, ItemDone, Shutdown
from kintune.wire.channel import front_end_of_worker

WIDTH = 48


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


@pytest.fixture(scope="session")
def dense() -> Any:
    """A workload with a weight: relu(a @ w), as an IRModule."""
    import tvm
    from tvm import te

    a = te.placeholder((WIDTH, WIDTH), name="a")
    w = te.placeholder((WIDTH, WIDTH), name="w")
    k = te.reduce_axis((0, WIDTH), name="k")
    matmul = te.compute(
        (WIDTH, WIDTH),
        lambda i, j: te.sum(a[i, k] * w[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [w]},
    )
    relu = te.compute(
        (WIDTH, WIDTH), lambda i, j: tvm.tirx.max(matmul[i, j], tvm.tirx.const(0.0, "float32")), name="relu"
    )
    return tvm.IRModule({"main": te.create_prim_func([a, w, relu])})


@pytest.fixture(scope="session")
def native() -> str:
    """This machine's canonical target, for one thread."""
    from kintune.runtime.target import resolve_target

    return resolve_target("native", 1)


@pytest.fixture(scope="session")
def healthy(dense: Any, native: str) -> Any:
    """The untuned program of `dense`, built."""
    import json

    import tvm

    from kintune.compiler.build import build_module

    return build_module(tvm.target.Target(json.loads(native)), dense, dense, "healthy")
