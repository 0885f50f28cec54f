from __future__ import annotations

import io

from rich.console import Console

from kintune.terminal.display import open_fleet_display
from kintune.terminal.live import LiveFleet, fleet_picture
from tests.support.reports import example_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_each_line_names_its_model() -> None:
    stream = io.StringIO()
    display = open_fleet_display("2 models", ["resnet18", "bert"], stream=stream)
    display.show(1, example_progress())
    display.close()
    title, *waiting, line = stream.getvalue().splitlines()
    assert title == "2 models"
    assert waiting == ["resnet18: waiting for its turn", "bert    : waiting for its turn"]
    assert line.startswith("bert    : 384 of 1000 trials")


def test_quiet_shows_nothing() -> None:
    stream = io.StringIO()
    display = open_fleet_display("2 models", ["a", "b"], quiet=True, stream=stream)
    display.show(0, example_progress())
    display.close()
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_table() -> None:
    stream = Terminal()
    display = open_fleet_display("2 models", ["resnet18", "bert"], stream=stream)
    assert isinstance(display, LiveFleet)
    display.show(0, example_progress())
    display.close()
    assert "waiting for its turn" in stream.getvalue()


def test_the_table_has_a_line_for_each_model() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(fleet_picture("2 models, policy fair", ["resnet18", "bert"], [example_progress(), None]))
    title, head, one, two = (line.rstrip() for line in console.export_text().splitlines())
    assert title == "2 models, policy fair"
    assert head.split() == ["model", "trials", "time", "left", "latency", "gain", "now"]
    assert one.split("  ")[0] == "resnet18"
    for part in ("384 of 1000", "03:12", "6 min", "15.0 ms", "2.00x", "profile conv2d_7"):
        assert part in one
    assert two.split() == ["bert", "waiting", "for", "its", "turn"]
