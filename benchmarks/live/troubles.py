"""What befalls a fleet of mocks, one thing after the other, drawn from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from live.mock_board import DEVICE, PROCESS, WORKER
from live.mock_fleet import MockMachine

_FROZEN_S, _UNWELL_S = 12.0, 20.0


class Troubles:
    """Makes trouble; `count` says how often each kind came about."""

    def __init__(self, machines: Sequence[MockMachine], seed: int) -> None:
        self.count: Counter[str] = Counter()
        self._machines = machines
        self._draw = random.Random(seed)
        self._kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "a device's worker is killed": lambda: self._hit(DEVICE, signal.SIGKILL),
            "a device's worker hangs": lambda: self._hit(DEVICE, signal.SIGSTOP),
            "a host's worker is killed": lambda: self._hit(WORKER, signal.SIGKILL),
            "a job's process is killed": lambda: self._hit(PROCESS, signal.SIGKILL),
            "a device is unwell for 20 s": self._unwell,
            "an agent is killed": self._kill,
            "an agent is frozen for 12 s": self._freeze,
            "a line is cut": self._cut,
        }

    async def make(self, every_s: float) -> None:
        """One every so many seconds, until this is cancelled; where there is nothing to hit, another one."""
        while True:
            await asyncio.sleep(every_s)
            kinds = list(self._kinds)
            self._draw.shuffle(kinds)
            for kind in kinds:
                if await self._kinds[kind]():
                    self.count[kind] += 1
                    break

    async def _hit(self, module: str, number: int) -> bool:
        pids = sorted(pid for machine in self._machines for pid in machine.processes(module))
        if not pids:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._draw.choice(pids), number)
        return True

    async def _kill(self) -> bool:
        self._draw.choice(self._machines).signal(signal.SIGKILL)
        return True

    async def _freeze(self) -> bool:
        machine = self._draw.choice(self._machines)
        machine.signal(signal.SIGSTOP)
        self._in(_FROZEN_S, lambda: machine.signal(signal.SIGCONT))
        return True

    async def _cut(self) -> bool:
        lines = [machine.line for machine in self._machines if machine.line is not None]
        if not lines:
            return False
        await self._draw.choice(lines).close()
        return True

    async def _unwell(self) -> bool:
        file = self._draw.choice([file for machine in self._machines for file in machine.unwell])
        file.touch()
        self._in(_UNWELL_S, lambda: file.unlink(missing_ok=True))
        return True

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)
