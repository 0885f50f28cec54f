"""The compiler's own RPC programs, which play boards and trackers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["stock_rpc"]


@contextmanager
def stock_rpc(program: str, *arguments: str) -> Iterator[int]:
    """Run `rpc_server` or `rpc_tracker` on a port of this machine, which it gives.

    The server hears and answers nobody any more once a candidate has crashed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", f"tvm.exec.{program}", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--port-end", str(port + 1), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not _listens(port):
            assert process.poll() is None, f"{program} has ended"
            assert time.monotonic() < deadline, f"{program} does not come up"
            time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which listen
        process.wait()


def _listens(port: int) -> bool:
    """Whether somebody listens there, by the kernel's list: a connection would be taken for a client."""
    with open("/proc/net/tcp") as connections:
        fields = [line.split() for line in connections]
    return any(field[3] == "0A" and field[1].endswith(f":{port:04X}") for field in fields[1:])
