"""Runs `kintune serve` in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Serving", "serving"]

_PATIENCE_S = 120.0


class Serving:
    """A running service: its URL, its data directory, and the process of its supervisor."""

    def __init__(self, url: str, data: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.data = data
        self.process = process

    def wait_until(self, path: str = "/readyz") -> None:
        """Wait until a request of `path` succeeds.

        Raises:
            AssertionError: the service has ended, or does not answer within two minutes.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + path, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError(f"the service does not come up: {self.log()[-2000:]}")

    def log(self) -> str:
        """Return what its processes wrote to standard error."""
        return (self.data / "serve.log").read_text(errors="replace")


@contextmanager
def serving(data: Path, *options: str, ready: str = "/readyz") -> Iterator[Serving]:
    """Serve from the directory `data` on a free port, with these options, until the block ends.

    The block begins once `ready` answers.

    Raises:
        AssertionError: the service does not come up.
    """
    data.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kintune", "serve", "--data", str(data), "--port", str(port), *options]
    with (data / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log, start_new_session=True)
    running = Serving(f"http://127.0.0.1:{port}", data, process)
    try:
        running.wait_until(ready)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
