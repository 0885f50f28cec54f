from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def start_stock() -> Iterator[Callable[..., int]]:
    """Starts a program of the compiler's ("rpc_server", "rpc_tracker") on a port of this machine; returns the port.

    Its Python server hears and answers nobody any more once a candidate has crashed; the one in C++, which boards have,
    does not mind.
    """
    with contextlib.ExitStack() as stack:

        def start(program: str, *arguments: str) -> int:
            port = _free_port()
            command = [sys.executable, "-m", f"tvm.exec.{program}", "--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(
                [*command, "--port-end", str(port + 1), *arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            deadline = time.monotonic() + 60
            while not _answers(port):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            return port

        yield start


@pytest.fixture(scope="module")
def board(start_stock: Callable[..., int]) -> str:
    """The address of a stock RPC server: a board as far as we can tell."""
    return f"127.0.0.1:{start_stock('rpc_server')}"


def _answers(port: int) -> bool:
    """Whether somebody listens there, by the kernel's list: a connection would be taken for a client."""
    wanted = f":{port:04X} "
    with open("/proc/net/tcp") as connections:
        return any(wanted in line.split(None, 3)[1] + " " and line.split()[3] == "0A" for line in list(connections)[1:])
