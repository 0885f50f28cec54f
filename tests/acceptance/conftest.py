"""Real commands in a place of their own, and ways to harm them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from kintune.testing.small_onnx import write_small_onnx

JOB, BUILD, DEVICE = "kintune.tuning.job.process", "kintune.workers.build_worker", "kintune.workers.device_worker"


class Event(NamedTuple):
    """A committed event, as the records hold it."""

    seq: int
    stage: str
    kind: str
    status: str
    payload: bytes


class Command:
    """A running `kintune`; what it says goes to files."""

    def __init__(self, place: Place, name: str, arguments: tuple[str, ...], **environment: str) -> None:
        self._place = place
        self._said = place.folder / f"{name}.out", place.folder / f"{name}.err"
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kintune", *arguments],
                cwd=place.folder,
                env={**os.environ, **place.environment, **environment},
                stdout=out,
                stderr=err,
            )

    def wait(self) -> int:
        """Its exit code, at its end."""
        return self.process.wait(timeout=200)

    @property
    def out(self) -> str:
        """What it has said on standard output."""
        return self._said[0].read_text()

    @property
    def err(self) -> str:
        """What it has said on standard error."""
        return self._said[1].read_text()

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened; fails if the command ends before."""
        while not happened():
            try:
                self.process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"it ended with {self.process.returncode} too soon:\n{self.out}{self.err}")

    def wait_for_events(self, count: int, kind: str = "") -> None:
        """Wait until so many events (of a kind) are committed since it is known to the records."""
        self.wait_until(lambda: len(self._place.events(kind)) >= count)

    def children(self, module: str = "") -> list[psutil.Process]:
        """Its child processes, all or those that run `module`."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if module in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill(self, module: str = "") -> None:
        """SIGKILL one of its children that run `module`, or the command itself."""
        if not module:
            self.process.kill()
            self.process.wait()
            return
        self.wait_until(lambda: bool(self.children(module)))
        self.children(module)[0].send_signal(signal.SIGKILL)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)


class Place:
    """A folder with a small model, records and locks of its own."""

    trials = 80  # more than are measured while three processes are killed one after the other

    threads = 1
    """Of more, each waits for a core that other tests may have, in every kernel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "records.sqlite"
        self.model = write_small_onnx(folder / "small.onnx")
        self.environment = {
            "KINTUNE_RECORDS": str(self.records),
            "KINTUNE_LOCK_DIR": str(folder / "locks"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self._started: list[Command] = []

    def start(self, *arguments: object, name: str = "", **environment: str) -> Command:
        """Start `kintune` with these arguments."""
        command = Command(
            self, name or f"command-{len(self._started)}", tuple(str(argument) for argument in arguments), **environment
        )
        self._started.append(command)
        return command

    def tune(self, *arguments: object, **environment: str) -> Command:
        """Start tuning the model with `trials` trials on `threads` threads."""
        limits = ("--trials", self.trials, "--threads", self.threads)
        return self.start("tune", self.model, *limits, "--log", "run.log", *arguments, **environment)

    def events(self, kind: str = "") -> list[Event]:
        """The events of all runs in the order of their numbers; none while there are no records."""
        try:
            with sqlite3.connect(self.records) as connection:
                found = connection.execute("SELECT seq, stage, kind, status, payload FROM events ORDER BY run_id, seq")
                return [event for event in map(Event._make, found) if kind in ("", event.kind)]
        except sqlite3.OperationalError:  # not there yet
            return []

    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Rows of the records."""
        with sqlite3.connect(self.records) as connection:
            return connection.execute(sql).fetchall()

    def clean_up(self) -> None:
        """End what a failed test left behind."""
        for command in self._started:
            if command.process.poll() is None:
                command.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> object:
    """One place for all tests of a module, which tell one story."""
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.clean_up()


@pytest.fixture
def empty_place(tmp_path: Path) -> object:
    """A place of the test's own."""
    place = Place(tmp_path)
    yield place
    place.clean_up()
