"""Someone who types the commands of a page of the documentation, in order and in one folder.

What goes on until it is ended (`kintune serve`, `kintune worker start`, `kintune device start`) runs beside what
follows, and is ended at the end of the page.  The reader puts in what a page leaves open: the id of the last job for
`ID`, and addresses of this machine for those of others.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["Reader"]

_LASTING = re.compile(r"kintune (serve|worker start|device start)\b")
_PATIENCE_S = 180.0
_ENDED_BY_SIGTERM = {0, 130, 143}
"""Exit codes of a service, and of agents, which are interrupted."""
_HANDED_IN = re.compile(r"kintune (submit|job retry)\b")


class Reader:
    """Types commands; what one fails with is in the AssertionError.

    `own` are options that some commands get in addition, by how they begin, such as names of machines.
    """

    def __init__(self, home: Path, own: Mapping[str, str] | None = None) -> None:
        self.folder = home / "reader"
        self.folder.mkdir(parents=True)
        self._home = home
        self._own = own or {}
        self._job = "ID"
        self._port, self._agents_port = _free_port(), _free_port()
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        bin_ = home / "bin"
        bin_.mkdir()
        for program, module in (("kintune", " -m kintune"), ("python", ""), ("pip", " -m pip")):
            path = bin_ / program
            path.write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
            path.chmod(0o755)
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "KINTUNE_RECORDS": str(home / "records.sqlite"),
            "KINTUNE_LOCK_DIR": str(home / "locks"),
            "KINTUNE_SERVICE": f"http://127.0.0.1:{self._port}",
            "PATH": f"{bin_}:{os.environ['PATH']}",
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        codes = {command: _ended(process) for command, process, _ in reversed(self._running)}
        if kind is None:
            assert set(codes.values()) <= _ENDED_BY_SIGTERM, (codes, self._said())

    def type_in(self, command: str) -> None:
        """Types a line, and waits for its end, or until it is at work if it is one that goes on."""
        line = self._filled_in(command)
        if found := _LASTING.search(line):
            self._start(line, found[1])
            return
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}{self._said()}"
        if _HANDED_IN.search(line):
            self._job = done.stdout.split()[0]

    def run_python(self, program: str) -> None:
        """Runs a program; `x` is an array for the input of the network of images."""
        prelude = 'import numpy\nx = numpy.zeros((1, 3, 224, 224), "float32")\n'
        done = subprocess.run(
            [sys.executable, "-c", prelude + program],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}\n{done.stdout[-3000:]}{done.stderr[-3000:]}{self._said()}"

    def _filled_in(self, command: str) -> str:
        line = re.sub(r"\bID\b", self._job, command)
        line = re.sub(r"--agents \S+", f"--agents 127.0.0.1:{self._agents_port}", line)
        line = re.sub(r"--service front:\d+", f"--service 127.0.0.1:{self._agents_port}", line)
        line = re.sub(r"kintune serve\b", f"kintune serve --port {self._port}", line)
        for beginning, options in self._own.items():
            line = line.replace(beginning, f"{beginning} {options}")
        return line

    def _start(self, line: str, kind: str) -> None:
        log = self._home / f"said-{len(self._running)}"
        # A machine of its own has locks of its own.
        locks = {} if kind == "serve" else {"KINTUNE_LOCK_DIR": str(self._home / f"locks-{len(self._running)}")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                cwd=self.folder,
                env={**self.environment, **locks},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._running.append((line, process, log))
        deadline = time.monotonic() + _PATIENCE_S
        while not (self._answers() if kind == "serve" else "joined as" in log.read_text(errors="replace")):
            assert process.poll() is None, f"{line} ended: {self._said()}"
            assert time.monotonic() < deadline, f"{line} does not come up: {self._said()}"
            time.sleep(0.1)

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            opener.open(f"http://127.0.0.1:{self._port}/readyz", timeout=5).close()
        except OSError:
            return False
        return True

    def _said(self) -> str:
        """The last that those at work have said."""
        return "".join(f"\n{line}:\n{log.read_text(errors='replace')[-2000:]}" for line, _, log in self._running)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """End a process as SIGTERM does; returns its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait() or 1


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
