from __future__ import annotations

import io

import pytest

from kintune_lab.bench.directory import CellState, end_record, start_record
from kintune_lab.bench.display import open_bench_display
from kintune_lab.experiment.experiment import Cell, CellProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


CELL = Cell(experiment="fake", version=1, values={}, changed={}, title="seed 3")


def play(stream: io.StringIO, *, quiet: bool = False) -> str:
    display = open_bench_display("a: 4 cells of fake", quiet=quiet, stream=stream)
    display.say("importing [zoo:x]")
    display.begin(CELL, 1, 4)
    display.show(CellProgress("build", 0.25), 1.0, 600.0)
    display.show(CellProgress("profile", 0.5), 5.0, None)
    display.show(CellProgress("update"), 40.0, None)
    record = start_record(CELL)
    display.done(end_record(record, CellState.DONE, 61.0))
    display.failed(end_record(record, CellState.FAILED, 61.0, ValueError("no [good]")))
    display.close()
    display.close()
    return stream.getvalue()


def test_plain_lines_are_few() -> None:
    assert play(io.StringIO()).splitlines() == [
        "a: 4 cells of fake",
        "importing [zoo:x]",
        "cell 2 of 4: seed 3",
        "  00:01 build (25%), about 10 min left in all",
        "  00:40 update",
        "  done in 01:01",
        "  failed after 01:01: ValueError: no [good]",
    ]


def test_a_terminal_shows_the_cell_and_keeps_what_failed() -> None:
    shown = play(Terminal())
    for part in ("a: 4 cells of fake", "1 of 4 cells", "seed 3", "ValueError: no [good]", "done in 01:01"):
        assert part in shown


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_says_nothing(stream: io.StringIO) -> None:
    assert play(stream, quiet=True) == ""


class Broken(io.StringIO):
    """A terminal, or a file, that takes no more."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("terminal", [False, True])
def test_a_broken_stream_does_not_end_a_bench(terminal: bool) -> None:
    play(Broken(terminal))


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_control_characters_do_not_reach_the_terminal(stream: io.StringIO) -> None:
    display = open_bench_display("a: 1 cell", stream=stream)
    display.failed(end_record(start_record(CELL), CellState.FAILED, 61.0, ValueError("\x1b[2Jcleared\x07")))
    display.close()
    assert " [2Jcleared" in stream.getvalue()
    assert "\x07" not in stream.getvalue()
