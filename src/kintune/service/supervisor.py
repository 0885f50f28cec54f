"""`kintune serve`: starts the web process and the orchestrator, restarts those that die, and ends them together.

The supervisor holds the writing end of a pipe and never writes; its child processes hold the reading end.  The kernel
closes the writing end when the supervisor is gone, however it ended, and the child processes then end themselves.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kintune.core.backoff import BackOff
from kintune.errors import EngineError, InputError
from kintune.files import write_whole
from kintune.service.settings import ServiceSettings

__all__ = ["PARTS", "RestartPolicy", "Supervisor", "data_directory", "end_with_parent"]

PARTS = ("orchestrator", "web")
"""The processes of a service."""

_LEAVE_S = 30.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_STEADY_S = 60.0  # after so long a run, the next wait is the shortest
_MOST_FAILURES = 5  # in a row, each before the process was steady
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM})

Say = Callable[[str], None]


class RestartPolicy:
    """When one process is started again.  One that ends by itself waits longer each time; one that was killed does not.

    One that ends with EX_TEMPFAIL waits longer each time as well, but is never given up.

    `due` is the time of the next start, in seconds on the clock of `now`.  It reads no clock.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.due = 0.0
        self._waits = BackOff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        self._started = 0.0

    @property
    def failed_too_often(self) -> bool:
        """Whether the process has ended too often before it ran for a minute."""
        return self.failures >= _MOST_FAILURES

    def started(self, now: float) -> None:
        """Records a start."""
        self._started = now

    def ended(self, code: int, now: float) -> None:
        """Records an end, with its exit code, negative for a signal."""
        steady = now - self._started >= _STEADY_S
        if code in _KILLED or steady:
            self._waits.reset()
        if steady:
            self.failures = 0
        if code not in _KILLED and code != os.EX_TEMPFAIL:
            self.failures += 1
        self.due = now + self._waits.next_wait()


class _Part:
    """One process of the service."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = RestartPolicy()

    def start(self, now: float, parent_pipe: int) -> None:
        """Starts it in a session of its own, so that Ctrl-C reaches the supervisor alone."""
        command = [sys.executable, "-m", *self.arguments, str(parent_pipe)]
        self.process = subprocess.Popen(command, pass_fds=[parent_pipe], start_new_session=True)
        self.restarts.started(now)


class Supervisor:
    """Runs until SIGTERM or SIGINT."""

    def __init__(self, settings: ServiceSettings, say: Say, parts: Sequence[str] = PARTS) -> None:
        self._settings = settings
        self._say = say
        self._leaving = False
        self._parent_pipe, self._held = os.pipe()  # see `kintune.service.supervisor`
        self._parts = [_Part(name, (f"kintune.service.{name}.process", self._write(name))) for name in parts]
        write_whole(settings.file, msgspec.json.encode(settings))  # for commands about the service

    def run(self) -> None:
        """Starts and restarts the processes until a signal ends the service.

        Raises:
            EngineError: a process has ended again and again before it served for a minute.
        """
        before = {number: signal.signal(number, self._leave) for number in (signal.SIGTERM, signal.SIGINT)}
        sleep, wake = os.pipe()
        for end in (wake, sleep):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        previous = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(sleep, selectors.EVENT_READ)
                while not self._leaving:
                    selector.select(self._start_due(time.monotonic()))
                    while self._drain(sleep):
                        pass
        finally:
            self._end_all()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, previous)
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in (wake, sleep, self._parent_pipe, self._held):
                os.close(end)

    def _start_due(self, now: float) -> float | None:
        """Starts the processes that are due; returns for how many seconds no other will be."""
        nearest: float | None = None
        for part in self._parts:
            if part.process is not None and (code := part.process.poll()) is not None:
                self._say(f"{part.name} ended with {code} and is restarted")
                part.process = None
                part.restarts.ended(code, now)
                if part.restarts.failed_too_often:
                    raise EngineError(f"{part.name} ends again and again before it can serve; its last output is above")
            if part.process is None:
                wait = part.restarts.due - now
                if wait <= 0:
                    part.start(now, self._parent_pipe)
                else:
                    nearest = wait if nearest is None else min(nearest, wait)
        return nearest

    def _write(self, name: str) -> str:
        """Writes the settings of one process; in a container of its own, it has other ones."""
        path = self._settings.directory / f"settings-{name}.json"
        write_whole(path, msgspec.json.encode(self._settings))
        return str(path)

    def _end_all(self) -> None:
        """Ends all processes, by SIGTERM and then by SIGKILL."""
        running = [part.process for part in self._parts if part.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _LEAVE_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _leave(self, *_: object) -> None:
        self._leaving = True

    @staticmethod
    def _drain(fd: int) -> bytes:
        try:
            return os.read(fd, 4096)
        except BlockingIOError:
            return b""


def data_directory(path: Path) -> Path:
    """Make the data directory, for its owner's eyes only.

    Raises:
        InputError: there cannot be a directory of ours at this path.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise InputError(
            f"--data {path}: cannot be made a directory for data ({error.strerror or error}); name another one"
        ) from error
    return path


def end_with_parent(arguments: Sequence[str]) -> None:
    """Sends this process SIGTERM when its parent is gone.

    The first of `arguments`, if there is one, is the descriptor of the pipe that the parent holds open.
    """
    if arguments:
        threading.Thread(target=_wait, args=(int(arguments[0]),), name="parent-watch", daemon=True).start()


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
