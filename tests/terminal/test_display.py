from __future__ import annotations

import io

from kintune.terminal.display import PlainDisplay, Silence, open_display
from kintune.terminal.live import LiveDisplay
from tests.support.reports import example_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_picture() -> None:
    display = open_display("resnet18", stream=Terminal())
    display.close()
    assert isinstance(display, LiveDisplay)


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(open_display("resnet18", stream=io.StringIO()), PlainDisplay)


def test_quiet_shows_nothing_anywhere() -> None:
    terminal = Terminal()
    display = open_display("resnet18", quiet=True, stream=terminal)
    display.show(example_progress())
    display.close()
    assert isinstance(display, Silence)
    assert terminal.getvalue() == ""
