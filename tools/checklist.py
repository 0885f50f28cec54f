"""Steps one after the other, with a line for each: what is done, how long it takes, how much time is left.

A step runs commands by `Runner.run`, which ends those that take too long.  The first step that fails ends the list:
what the command said is printed, and one line at the end says which step failed and why.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["Failed", "Progress", "Runner", "Step", "run_steps", "span"]

_LOOK_S = 0.2
_LAST_LINES = 30
_QUIET_LINE_S = 30.0
"""Seconds between two lines on a step at work, where the output is no terminal."""
_GRACE_S = 10.0
_TRUST_S = 60.0
"""After this many seconds of steps, their pace on this machine counts as much as the expected one."""


class Failed(Exception):
    """A step went wrong: one line that says how, and what was printed before, if anything."""

    def __init__(self, why: str, printed: str = "") -> None:
        super().__init__(why)
        self.printed = printed


class Step(NamedTuple):
    """What a step does, about how many seconds it takes, and the function, which returns a line to show."""

    what: str
    seconds: float
    do: Callable[[], str]


def span(seconds: float) -> str:
    """A time in words: `40 s`, `3 min`."""
    return f"{max(seconds, 0):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Progress:
    """Shows the step at work: a line that is drawn anew on a terminal, otherwise a line every half a minute."""

    def __init__(
        self, steps: Sequence[Step], output: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._steps = steps
        self._output = output or sys.stdout
        self._clock = clock
        self._live = self._output.isatty()
        self._number = -1
        self._spent = 0.0
        self._since = self._shown = self.begun = clock()

    @property
    def place(self) -> str:
        """Which of the steps is at work: `3 of 9, tune a small network`."""
        return f"{self._number + 1} of {len(self._steps)}, {self._steps[self._number].what}"

    @property
    def left_s(self) -> float:
        """About how many seconds are left, judged by how long the steps before have taken."""
        known = sum(step.seconds for step in self._steps[: self._number])
        factor = (self._spent + _TRUST_S) / (known + _TRUST_S)
        this, *others = self._steps[self._number :]
        rest = max(this.seconds * factor - (self._clock() - self._since), 0.0)
        return rest + factor * sum(step.seconds for step in others)

    def begin(self) -> None:
        """The next step begins."""
        self._number += 1
        self._since = self._shown = self._clock()
        if not self._live:
            self._print(f"{self._mark} {self._steps[self._number].what} (about {span(self.left_s)} left)")
        self.tick()

    def tick(self, doing: str = "") -> None:
        """Draw the line of the step anew; without a terminal, print one if half a minute has passed."""
        now = self._clock()
        taken, left = span(now - self._since), span(self.left_s)
        if self._live:
            line = f"{self._mark} {self._steps[self._number].what}: {taken}, about {left} left"
            self._output.write(f"\r\033[K{line[: self._width]}")
            self._output.flush()
        elif now - self._shown >= _QUIET_LINE_S:
            self._shown = now
            self._print(f"      {taken}, about {left} left{f': {doing[:60]}' if doing else ''}")

    def end(self, said: str) -> None:
        """The step is done."""
        taken = self._clock() - self._since
        self._spent += taken
        what = f"{self._mark} {self._steps[self._number].what}" if self._live else "     "
        self._print(f"{what} done in {span(taken)}: {said}")

    def fail(self, error: Failed) -> None:
        """The step has failed; the last line says so."""
        if self._live:
            self._print(f"{self._mark} {self._steps[self._number].what} failed")
        if error.printed:
            self._print(error.printed)
        self._print(f"failed at {self.place}: {error}")

    @property
    def _mark(self) -> str:
        return f"[{self._number + 1}/{len(self._steps)}]"

    @property
    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._output.fileno()).columns - 1
        except (OSError, ValueError):
            return 79

    def _print(self, line: str) -> None:
        self._output.write(f"\r\033[K{line}\n" if self._live else f"{line}\n")
        self._output.flush()


class Runner:
    """Runs commands, in groups of processes of their own, and calls `tick` with the command while it waits."""

    def __init__(self, tick: Callable[[str], None] = lambda doing: None) -> None:
        self.tick = tick

    def run(
        self, *command: object, folder: Path, environment: Mapping[str, str] | None = None, limit_s: float = 900.0
    ) -> str:
        """Runs a command; returns what it prints on standard output.

        Raises:
            Failed: it cannot be started, ends with another code than 0, or takes longer than `limit_s` seconds.
        """
        words = [str(word) for word in command]
        short = " ".join([Path(words[0]).name, *words[1:]])[:100]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    words,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                raise Failed(f"{words[0]} cannot be started: {error.strerror}") from error
            try:
                code = self._wait(process, short, limit_s)
            finally:
                end_group(process)
            printed, errors = (_text(file) for file in (out, err))
        if code == 0:
            return printed
        how = f"did not end within {span(limit_s)}" if code is None else f"ended with code {code}"
        last = "\n".join((printed + errors).splitlines()[-_LAST_LINES:])
        raise Failed(f"{short} {how}", f"{shlex.join(words)}\n{last}")

    def _wait(self, process: subprocess.Popen[bytes], doing: str, limit_s: float) -> int | None:
        """The exit code; None if it goes on for longer than it may."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            try:
                return process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                self.tick(doing)
        return None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and what it has started, if it is still there."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_steps(progress: Progress, steps: Sequence[Step]) -> bool:
    """Does the steps in order; returns whether all went well."""
    for step in steps:
        progress.begin()
        try:
            said = step.do()
        except Failed as error:
            progress.fail(error)
            return False
        except Exception as error:  # a defect of the step
            progress.fail(Failed(f"{type(error).__name__}: {error}", traceback.format_exc().rstrip()))
            return False
        progress.end(said)
    return True


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
