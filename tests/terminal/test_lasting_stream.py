from __future__ import annotations

import io
import os
import pty
from collections.abc import Callable

import pytest

from kintune.terminal.display import open_display, open_fleet_display
from kintune.terminal.lasting_stream import lasting
from tests.support.reports import example_progress


class Broken(io.StringIO):
    """Takes a few texts, and then no more."""

    def __init__(self, takes: int, error: Exception) -> None:
        super().__init__()
        self._takes = takes
        self._error = error

    def write(self, text: str) -> int:
        if self._takes == 0:
            raise self._error
        self._takes -= 1
        return super().write(text)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError(), ValueError("closed")])
def test_what_a_broken_stream_does_not_take_is_swallowed(error: Exception) -> None:
    broken = Broken(1, error)
    stream = lasting(broken)
    assert [stream.write(text) for text in ("one", "two!", "three")] == [3, 4, 5]
    stream.flush()
    assert broken.getvalue() == "one"
    assert not stream.isatty()
    assert stream.encoding == "utf-8"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BrokenPipeError()])
def test_a_display_outlives_its_stream(error: Exception) -> None:
    display = open_display("net", stream=Broken(1, error))
    fleet = open_fleet_display("2 models", ["a", "b"], stream=Broken(1, error))
    for trials in (1, 2):
        display.show(example_progress(trials=trials, elapsed_s=100.0 * trials))
        fleet.show(1, example_progress(trials=trials, elapsed_s=100.0 * trials))
    display.close()
    fleet.close()


def in_pty(use: Callable[[io.TextIOWrapper, int], None]) -> None:
    """Use the terminal's end of a pseudo-terminal, and the number of the other one."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        use(stream, master)


def test_a_live_picture_outlives_its_terminal() -> None:
    def use(stream: io.TextIOWrapper, master: int) -> None:
        display = open_display("net", stream=stream)
        display.show(example_progress(trials=1, elapsed_s=1.0))
        os.close(master)  # the terminal is closed
        for trials in range(2, 6):
            display.show(example_progress(trials=trials, elapsed_s=100.0 * trials))
        display.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # so that closing it works

    in_pty(use)


def test_a_verbose_display_has_a_line_for_every_report() -> None:
    stream = io.StringIO()
    display = open_display("net", verbose=True, stream=stream)
    for trials in range(5):
        display.show(example_progress(trials=trials))
    display.close()
    assert len(stream.getvalue().splitlines()) == 6
