"""Runtimes that take turns, each in a process of its own; for other benchmarks in this directory."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["Contestant", "in_turns"]

ROOT = Path(__file__).resolve().parents[1]
_ROUNDS = 12
_TURN_MS = 150.0


class Contestant:
    """One runtime in a process of its own, stopped except in its turns."""

    def __init__(self, kind: str, file: Path, inputs: Path, threads: int, before: Path | None = None) -> None:
        tree = before or ROOT
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'runtime/src'}"}
        command = [sys.executable, str(ROOT / "benchmarks/contestant.py"), kind, str(file), str(inputs), str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read("ready")
        self._process.send_signal(signal.SIGSTOP)

    def turn(self, runs: int) -> list[float]:
        """Milliseconds of as many runs."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{runs}\n")
        self._process.stdin.flush()
        times: list[float] = json.loads(self._read(""))
        self._process.send_signal(signal.SIGSTOP)
        return times

    def _read(self, wanted: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(wanted or "["):
                return line
        raise SystemExit("a contestant ended early; its messages are above")

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def in_turns(contestants: Mapping[str, Contestant]) -> dict[str, list[float]]:
    """The median of each turn in milliseconds, by contestant and round; every round begins with another one."""
    medians: dict[str, list[float]] = {name: [] for name in contestants}
    runs = {name: max(3, int(_TURN_MS / statistics.median(each.turn(5)))) for name, each in contestants.items()}
    names = list(contestants)
    for number in range(_ROUNDS):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            medians[name].append(statistics.median(contestants[name].turn(runs[name])))
    return medians
