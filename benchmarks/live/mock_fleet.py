"""Machines of mocks: an agent each, in a process of its own, that is started again when it dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import IO

import msgspec

from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.fleet.content_cache import CACHE_VARIABLE
from kintune.workers.fleet.messages import FLEET_VERSION, Join, OfferedDevice
from kintune.workers.fleet.sockets import SocketTransport

_RESTART_S = 5.0


class MockMachine:
    """One machine, whose files are in `folder`.

    `line` is the one to its agent, while there is one, `unwell` the files that make its devices so.
    """

    def __init__(self, name: str, folder: Path, *, cores: int = 0, type: str = "", devices: int = 0) -> None:
        self.name = name
        self.unwell = [folder / f"{name}-{number}" for number in range(devices)]
        self.line: SocketTransport | None = None
        self._folder = folder
        offered = tuple(OfferedDevice(f"d{n}", type, (str(file),), b"") for n, file in enumerate(self.unwell))
        memory_mb = 1 << 16 if cores else 0
        self._join = Join(name, name, FLEET_VERSION, WIRE_VERSION, cores=cores, memory_mb=memory_mb, devices=offered)
        self._agent: asyncio.subprocess.Process | None = None

    async def live(self, url: str, log: IO[bytes]) -> None:
        """Run its agent, one after the other, until this is cancelled."""
        join = base64.b64encode(msgspec.msgpack.encode(self._join)).decode()
        try:
            while True:
                self._agent = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "live.mock_board",
                    url,
                    self.name,
                    join,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "TMPDIR": str(self._folder), CACHE_VARIABLE: str(self._folder / "files")},
                )
                await self._agent.wait()
                await asyncio.sleep(_RESTART_S)
        finally:
            self.signal(signal.SIGKILL)
            if self._agent is not None:
                await self._agent.wait()

    @property
    def agent(self) -> int | None:
        """The process of its agent, if there is one."""
        return self._agent.pid if self._agent is not None and self._agent.returncode is None else None

    def signal(self, number: int) -> None:
        """Send its agent a signal."""
        if (agent := self.agent) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, number)

    def processes(self, module: str) -> list[int]:
        """Those that its agent keeps and that run this module."""
        return [] if self.agent is None else [pid for pid in _children(self.agent) if module in _command(pid)]


def _children(pid: int) -> list[int]:
    try:
        return [
            int(word)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for word in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
